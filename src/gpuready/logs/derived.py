"""Statements that follow from several lines together. Patterns match them by ``derived:`` and their place.

No line of a log can forge one: the place of a log line is never ``derived``.
"""

from __future__ import annotations

from gpuready.logs.condition import number
from gpuready.logs.exits import exits
from gpuready.logs.lines import Line
from gpuready.logs.pattern import Pattern

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuready.logs.recorder import Standstill

_WORK = Pattern(
    r"WorkNCCL\(SeqNum=(\d{1,12}), OpType=(\w+)(?:, NumelIn=(\d{1,12}))?(?:, NumelOut=(\d{1,12}))?"
)


def derived(told: Sequence[Line], stands: Sequence[Standstill] = (), source: int = 0) -> list[Line]:
    """Everything that follows from the lines together, and from flight-recorder dumps."""
    return [*_deaths(told), *_collectives(told), *_pace(told), *_threads(told), *_stands(stands, source)]


def _say(line: Line, words: str, rank: int | None) -> Line:
    return line.but(text=f"derived: {words}", rank=rank, place="derived", pid=None, role="derived", level="")


_SIGNALS = {-9: 9, 137: 9, -7: 7, 135: 7, -11: 11, 139: 11, -6: 6, 134: 6, -1: 1, 129: 1}


def _deaths(told: Sequence[Line]) -> list[Line]:
    """Processes ended by a signal, once per rank."""
    places = {(line.source, line.number): line for line in told}
    said: dict[object, Line] = {}
    for end in exits(told):
        signal = _SIGNALS.get(end.code or 0)
        if signal:
            line = places[end.source, end.number]
            words = f"a process was killed by signal {signal}"
            said.setdefault((end.rank, signal), _say(line, words, end.rank))
    return list(said.values())


def _collectives(told: Sequence[Line]) -> list[Line]:
    """Whether the watchdogs of the ranks waited for the same collective."""
    waits: dict[int, tuple[Line, tuple[str, str, str]]] = {}
    for line in told:
        if line.rank is not None and "Watchdog caught" in line.text and (work := _WORK.search(line.text)):
            waits.setdefault(line.rank, (line, (work[1], work[2], work[3] or "")))
    if not waits:
        return []
    kinds: dict[tuple[str, str, str], list[int]] = {}
    for rank, (_, kind) in waits.items():
        kinds.setdefault(kind, []).append(rank)
    if len(kinds) == 1:
        line = next(iter(waits.values()))[0]
        return [_say(line, "ranks wait in the same collective", line.rank)]
    odd = min(kinds, key=lambda kind: (len(kinds[kind]), int(kind[0])))
    rank = min(kinds[odd])
    seq, op, size = odd
    words = f"ranks wait in different collectives: rank {rank} in {op}, number {seq} of {size or 'unknown'} elements"
    return [_say(waits[rank][0], words, rank)]


# -- throughput -------------------------------------------------------------------------------------------------

_PACES = (
    (Pattern(r"samples per second: ([\d.]{1,12})"), 1),
    (Pattern(r"elapsed time per iteration \((?:s|ms)\): ([\d.]{1,12})"), -1),
    (Pattern(r"(?:tokens_per_second|tokens/s(?:ec(?:ond)?)?(?:/gpu)?|tgs|tps)['\"]?[:=] ?([\d.,]{1,14})"), 1),
    (Pattern(r"throughput[^:=]{0,40}[:=] ?([\d.]{1,12})"), 1),
    (Pattern(r"(?:step_time|time_per_step|sec/step|seconds_per_step)['\"]?[:=] ?([\d.]{1,12})"), -1),
)
FALL, STEP, CALM = 0.04, 0.025, 0.015
"""Smallest fall in throughput that is reported, the step down that no later line recovers, and the jitter allowed before it."""


def _pace(told: Sequence[Line]) -> list[Line]:
    """Whether the work became permanently slower: steady before, steady after, and a step between."""
    for pattern, sense in _PACES:
        series = _series(told, pattern, sense)
        if len(series) >= 4 and (fall := _fall(series)) is not None:
            line, percent = fall
            return [_say(line, f"throughput fell by {percent:.0f} % and stayed there", None)]
    return []


def _series(told: Sequence[Line], pattern: Pattern, sense: int) -> list[tuple[Line, float]]:
    found = []
    for line in told:
        if (match := pattern.search(line.text)) and (value := number(match[1])):
            found.append((line, value if sense > 0 else 1.0 / value))
    return found


def _fall(series: Sequence[tuple[Line, float]]) -> tuple[Line, float] | None:
    """Where throughput steps down for good, and by how much."""
    values = [value for _, value in series]
    highest = values[:]  # from each index on
    for i in range(len(values) - 2, -1, -1):
        highest[i] = max(values[i], highest[i + 1])
    for cut in range(2, len(values) - 1):
        before, after = values[max(0, cut - 20) : cut], values[cut : cut + 200]
        high, low = min(before), highest[cut]
        if high <= 0 or (high - low) / high < STEP or (max(before) - high) / high > CALM:
            continue
        fall = 1.0 - sorted(after)[len(after) // 2] / (sum(before) / len(before))
        if fall >= FALL:
            return series[cut][0], 100.0 * fall
    return None


# -- threads ----------------------------------------------------------------------------------------------

_THREAD = Pattern(r'Thread (?:0x)?[0-9A-Fa-f]{1,18} \((?:idle|active|active\+gil)\)(?:: "([^"]{1,80})")?')
_FRAME = Pattern(r"([\w<>.]{1,120}) \(([^()]{1,200}):(\d{1,7})\)$")
_WAITING = ("torch/distributed/", "distributed_c10d", "ProcessGroup", "c10d", "nccl")


def _threads(told: Sequence[Line]) -> list[Line]:
    """A py-spy dump, taken because nothing moved: what the main thread does, if it waits for other ranks."""
    said: dict[tuple[int, int | None], Line] = {}
    main: Line | None = None
    for line in told:
        if (thread := _THREAD.match(line.text.strip())) is not None:
            main = line if thread[1] in (None, "MainThread") else None
            continue
        frame = _FRAME.match(line.text.strip()) if main is not None else None
        if frame is not None and any(word in frame[2] for word in _WAITING):
            words = f"the main thread waits for other ranks in {frame[1]} ({frame[2]})"
            said.setdefault((line.source, line.rank), _say(line, words, line.rank))
            main = None
    return list(said.values())


# -- dumps ------------------------------------------------------------------------------------------------


def _stands(stands: Sequence[Standstill], source: int) -> list[Line]:
    """What the flight recorders of all ranks show together."""
    said = []
    for one in stands[:64]:
        if one.why == "gpu-stands":
            words = (
                f"the GPU of rank {one.rank} does not complete what its peers have completed in {one.group}"
            )
        else:
            words = (
                f"{len(one.waiting)} ranks wait for rank {one.rank}, which waits for nobody, in {one.group}"
            )
        line = Line(0, "", source=source, rank=one.rank)
        said.append(_say(line, words, one.rank))
    return said
