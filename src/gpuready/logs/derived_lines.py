"""Statements that follow from several lines together. Patterns match them by ``derived:`` and their place.

No line of a log can forge one: the place of a log line is never ``derived``.
"""

from collections.abc import Iterator, Sequence
from itertools import takewhile

from gpuready.logs.conditions import parse_number
from gpuready.logs.flight_recorder import Standstill
from gpuready.logs.lazy_regex import LazyRegex
from gpuready.logs.log_lines import LogLine
from gpuready.logs.process_exits import find_exits

_WORK = LazyRegex(r"WorkNCCL\(SeqNum=(\d{1,12}), OpType=(\w{1,40})(?=[,)])(?:, NumelIn=(\d{1,12})(?=[,)]))?")
"""What a rank waits in; a number or a name that the line is cut in does not count."""


def derive_lines(lines: Sequence[LogLine], standstills: Sequence[Standstill] = (), source: int = 0) -> list[LogLine]:
    """Everything that follows from the lines together, and from flight-recorder dumps."""
    return [
        *_find_signal_deaths(lines),
        *_compare_collectives(lines),
        *_detect_slowdown(lines),
        *_find_waiting_threads(lines),
        *(_make_statement(line, words, line.rank) for line, words in find_divergence(lines)),
        *_describe_standstills(standstills, source),
    ]


def _make_statement(line: LogLine, words: str, rank: int | None) -> LogLine:
    return line.replace(text=f"derived: {words}", rank=rank, place="derived", pid=None, role="derived", level="")


_SIGNALS = {-9: 9, 137: 9, -7: 7, 135: 7, -11: 11, 139: 11, -6: 6, 134: 6, -4: 4, 132: 4, -1: 1, 129: 1}


def _find_signal_deaths(lines: Sequence[LogLine]) -> list[LogLine]:
    """Processes ended by a signal, once per rank."""
    places = {(line.source, line.number): line for line in lines}
    statements: dict[object, LogLine] = {}
    for end in find_exits(lines):
        if signal := _SIGNALS.get(end.code or 0):
            line, words = places[end.source, end.number], f"a process was killed by signal {signal}"
            statements.setdefault((end.rank, signal), _make_statement(line, words, end.rank))
    return list(statements.values())


def _compare_collectives(lines: Sequence[LogLine]) -> list[LogLine]:
    """Whether the watchdogs of the ranks waited for different collectives."""
    waits: dict[int, tuple[LogLine, tuple[str, str, str]]] = {}
    for line in lines:
        if line.rank is not None and "Watchdog caught" in line.text and (work := _WORK.search(line.text)):
            waits.setdefault(line.rank, (line, (work[1], work[2], work[3] or "")))
    if not all(size for _, (_, _, size) in waits.values()):  # an old release, or a line that is cut
        waits = {rank: (line, (seq, op, "")) for rank, (line, (seq, op, _)) in waits.items()}
    kinds: dict[tuple[str, str, str], list[int]] = {}
    for rank, (_, kind) in waits.items():
        kinds.setdefault(kind, []).append(rank)
    if len(kinds) < 2:
        return []
    rarest = min(kinds, key=lambda kind: (len(kinds[kind]), int(kind[0])))
    rank = min(kinds[rarest])
    seq, op, size = rarest
    where = "different collectives" if len({other[1:] for other in kinds}) > 1 else "collectives of different numbers"
    words = f"ranks wait in {where}: rank {rank} in {op}, number {seq} of {size or 'unknown'} elements"
    return [_make_statement(waits[rank][0], words, rank)]


# -- throughput -------------------------------------------------------------------------------------------------

_PACE_PATTERNS = (
    (LazyRegex(r"samples per second: ([\d.]{1,12})"), 1),
    (LazyRegex(r"elapsed time per iteration \((?:s|ms)\): ([\d.]{1,12})"), -1),
    (LazyRegex(r"(?:tokens_per_second|tokens/s(?:ec(?:ond)?)?(?:/gpu)?|tgs|tps)['\"]?[:=] ?([\d.,]{1,14})"), 1),
    (LazyRegex(r"throughput[^:=]{0,40}[:=] ?([\d.]{1,12})"), 1),
    (LazyRegex(r"(?:step_time|time_per_step|sec/step|seconds_per_step)['\"]?[:=] ?([\d.]{1,12})"), -1),
)
MIN_FALL, MIN_STEP, MAX_JITTER = 0.04, 0.025, 0.015
"""Smallest fall in throughput that is reported, the step down that no later line recovers, and the jitter allowed before it."""


def _detect_slowdown(lines: Sequence[LogLine]) -> list[LogLine]:
    """Whether the work became permanently slower: steady before, steady after, and a step between."""
    for pattern, sense in _PACE_PATTERNS:
        series = _extract_series(lines, pattern, sense)
        if len(series) >= 4 and (fall := _find_fall(series)) is not None:
            line, percent = fall
            return [_make_statement(line, f"throughput fell by {percent:.0f} % and stayed there", None)]
    return []


def _extract_series(lines: Sequence[LogLine], pattern: LazyRegex, sense: int) -> list[tuple[LogLine, float]]:
    told = ((line, parse_number(match[1])) for line in lines if (match := pattern.search(line.text)))
    return [(line, value if sense > 0 else 1.0 / value) for line, value in told if value]


def _find_fall(series: Sequence[tuple[LogLine, float]]) -> tuple[LogLine, float] | None:
    """Where throughput steps down for good, and by how much."""
    values = [value for _, value in series]
    highest = values[:]  # from each index on
    for i in range(len(values) - 2, -1, -1):
        highest[i] = max(values[i], highest[i + 1])
    for cut in range(2, len(values) - 1):
        before, after = values[max(0, cut - 20) : cut], values[cut : cut + 200]
        high, low = min(before), highest[cut]
        if high <= 0 or (high - low) / high < MIN_STEP or (max(before) - high) / high > MAX_JITTER:
            continue
        fall = 1.0 - sorted(after)[len(after) // 2] / (sum(before) / len(before))
        if fall >= MIN_FALL:
            return series[cut][0], 100.0 * fall
    return None


# -- threads ----------------------------------------------------------------------------------------------

_THREAD = LazyRegex(r'Thread (?:0x)?[0-9A-Fa-f]{1,18} \((?:idle|active|active\+gil)\)(?:: "([^"]{1,80})")?')
_FRAME = LazyRegex(r"([\w<>.]{1,120}) \(([^()]{1,200}):(\d{1,7})\)$")
_WAITING = ("torch/distributed/", "distributed_c10d", "ProcessGroup", "c10d", "nccl")


def _find_waiting_threads(lines: Sequence[LogLine]) -> list[LogLine]:
    """A py-spy dump, taken because nothing moved: where the main thread waits for other ranks, or else stands."""
    waiting: dict[tuple[int, int | None], LogLine] = {}
    standing: dict[tuple[int, int | None], LogLine] = {}
    main: LogLine | None = None
    for line in lines:
        if (thread := _THREAD.match(line.text.strip())) is not None:
            main = line if thread[1] in (None, "MainThread") else None
            continue
        frame = _FRAME.match(line.text.strip()) if main is not None else None
        if frame is None:
            continue
        where, key = f"{frame[1]} ({frame[2]})", (line.source, line.rank)
        standing.setdefault(key, _make_statement(line, f"the main thread stands in {where}", line.rank))
        if any(word in frame[2] for word in _WAITING):
            words = f"the main thread waits for other ranks in {where}"
            waiting.setdefault(key, _make_statement(line, words, line.rank))
            main = None
    return list((standing | waiting).values())


# -- dumps ------------------------------------------------------------------------------------------------


def _describe_standstills(standstills: Sequence[Standstill], source: int) -> list[LogLine]:
    """What the flight recorders of all ranks show together."""
    statements = []
    for standstill in standstills[:64]:
        if standstill.why == "gpu-stands":
            words = f"the GPU of rank {standstill.rank} does not complete what its peers have completed in {standstill.group}"
        else:
            words = f"{len(standstill.waiting)} ranks wait for rank {standstill.rank}, which waits for nobody, in {standstill.group}"
        line = LogLine(0, "", source=source, rank=standstill.rank)
        statements.append(_make_statement(line, words, standstill.rank))
    return statements


MIN_STREAK, MAX_TEXT = 2, 600
"""Last lines that must tell the same, and how much of each is read."""

_LOSS = LazyRegex(r"(?i)(?:^|[^a-z])loss(?:es)?['\"]{0,2}(?: is)?[ :=|>]{1,6}['\"]?(?:tensor\()?(nan|-?inf|-?\d)")
_SCALE = LazyRegex(r"(?i)(?:reduc|sett|decreas|lower|halv)ing[^\n]{0,40}? to:? ?(\d[\d.e+-]{0,24})")


def find_divergence(lines: Sequence[LogLine]) -> Iterator[tuple[LogLine, str]]:
    """The line from which every loss is NaN or infinite, and the one from which the loss scale cannot fall any more."""
    for values, words in (
        (_read_losses(lines), "the loss is not finite to the end of the log"),
        (_read_scales(lines), "the loss scale stays at its minimum to the end of the log"),
    ):
        streak = _last_streak(values)
        if len(streak) >= MIN_STREAK:
            yield streak[0], words


def _read_losses(lines: Sequence[LogLine]) -> list[tuple[LogLine, bool]]:
    """Every line that tells a loss, and whether one in it is not finite."""
    told = ((line, _LOSS.compiled.findall(line.text[:MAX_TEXT])) for line in lines if "loss" in line.text.lower())
    return [(line, any("n" in value.lower() for value in values)) for line, values in told if values]


def _read_scales(lines: Sequence[LogLine]) -> list[tuple[LogLine, bool]]:
    """Every line in which a loss scale is reduced, and whether to 1 or less: ``loss scale: 1, reducing to 1``."""
    told = ((line, _SCALE.search(line.text[:MAX_TEXT])) for line in lines if "scale" in line.text)
    values = ((line, parse_number(match[1])) for line, match in told if match)
    return [(line, value <= 1) for line, value in values if value is not None]


def _last_streak(values: Sequence[tuple[LogLine, bool]]) -> list[LogLine]:
    """The last lines, of one log, of which all are bad."""
    bad = takewhile(lambda value: value[1] and value[0].source == values[-1][0].source, reversed(values))
    return [line for line, _ in bad][::-1]
