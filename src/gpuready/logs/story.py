"""Summarise logs: lines, exceptions, process exits, and pattern matches."""

from __future__ import annotations

from bisect import bisect_left, bisect_right

from gpuready.logs import wrapped
from gpuready.logs.excerpt import excerpt
from gpuready.logs.exits import exits
from gpuready.logs.lines import lines
from gpuready.logs.pattern import Pattern
from gpuready.logs.sieve import Sieve
from gpuready.logs.sign import compiled
from gpuready.logs.tracebacks import tracebacks
from gpuready.noun import Noun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from typing import Any

    from gpuready.logs.excerpt import Excerpt
    from gpuready.logs.exits import Exit
    from gpuready.logs.lines import Line
    from gpuready.logs.sign import Sign
    from gpuready.logs.tracebacks import Failure

    Row = tuple[str, str | Mapping[str, Any]]

STRUCTURE = (
    "Traceback (most recent call last)", '", line ', "Error: ", "Exception: ", "terminate called after", "NCCL WARN",
    "Root Cause (first observed failure)", "failed (exitcode:", "exits with return code", "srun: error", "slurmstepd: error",
    "Segmentation fault", "Fatal Python error", "Watchdog caught collective operation timeout", " nranks ", "NVRM: Xid", "NCCL INFO Trees [",
)  # fmt: skip
"""Literals that belong to no cause and are always needed: kept without a quota."""

NEAR = 8
"""Lines of the same process before and after a line that count as its context."""


_NOT_RAY = (
    "EngineCore",
    "Worker_",
    "VllmWorker",
    "APIServer",
    "ApiServer",
    "DPCoordinator",
    "raylet",
    "derived",
    "head",
    "worker",
)

PORTION = 200
"""Lines searched at once."""


class Source(Noun):
    """Where bytes come from: a display name and the bytes."""

    name: str
    chunks: Iterable[bytes]
    rank: int | None = None  # from its path: attempt_0/3/stderr.log
    host: str = ""


class Sighting(Noun):
    """A pattern that matched: its captures, the line, and the exception it is part of."""

    sign: Sign
    captures: dict[str, str]
    index: int  # of the line in the summary
    line: Line
    failure: int | None = None


class Story(Noun):
    """Everything the diagnosis gets to know of some logs."""

    names: tuple[str, ...] = ()
    totals: tuple[tuple[int, int], ...] = ()  # lines and bytes of each source
    lines: tuple[Line, ...] = ()
    failures: tuple[Failure, ...] = ()
    exits: tuple[Exit, ...] = ()
    sightings: tuple[Sighting, ...] = ()
    aftermath: tuple[Sighting, ...] = ()
    heard: frozenset[str] = frozenset()  # texts of also and unless that occur anywhere


class Wording:
    """All patterns, including those of consequences (with an empty code), indexed by literal; each is compiled on first use."""

    def __init__(self, table: Mapping[str, Any], engine: str = "auto"):
        self._rows: Sequence[Row] = table["rows"]
        self._index: Mapping[str, Sequence[int]] = table["index"]
        self._compiled: dict[int, Sign] = {}
        self.remarks = frozenset(table["remarks"])
        self.literals = list(dict.fromkeys([*STRUCTURE, *self._index, *sorted(self.remarks)]))
        self.sieve = Sieve(self.literals, engine)
        self.often = frozenset(range(len(STRUCTURE)))

    def signs(self, literal: str) -> list[tuple[int, Sign]]:
        """The patterns that are searched for by this literal."""
        return [(number, self._sign(number)) for number in self._index.get(literal, ())]

    def _sign(self, number: int) -> Sign:
        if number not in self._compiled:
            code, row = self._rows[number]
            self._compiled[number] = compiled(code, [row])[0]
        return self._compiled[number]


def table(rows: Sequence[Row]) -> dict[str, Any]:
    """Precompute the table for a PatternIndex, so that reading a log compiles nothing; stored by tools/compile_catalog.py."""
    index: dict[str, list[int]] = {}
    remarks: dict[str, None] = {}
    for number, (code, row) in enumerate(rows):
        sign = compiled(code, [row])[0]
        for literal in dict.fromkeys((sign.literal, " ".join(sign.literal.split()))):
            index.setdefault(literal, []).append(number)
        remarks |= dict.fromkeys((*sign.also, *sign.unless))
    return {"rows": list(rows), "index": index, "remarks": list(remarks)}


def read(
    sources: Sequence[Source], wording: Wording, derive: Callable[[Sequence[Line]], list[Line]] | None = None
) -> Story:
    """Read every source once and summarise them together."""
    told: list[Line] = []
    totals = []
    for number, source in enumerate(sources):
        part = excerpt(source.chunks, wording.sieve, wording.often, max(len(sources), 1))
        totals.append((part.lines, part.bytes))
        told += _of(part, number, source)
    told = named(told)
    told += derive(told) if derive else []
    failures = tracebacks(told)
    seen, heard = _sightings(told, failures, wording)
    return Story(
        tuple(source.name for source in sources), tuple(totals), tuple(told), tuple(failures), tuple(exits(told)),
        tuple(s for s in seen if s.sign.code),
        tuple(s for s in seen if not s.sign.code), heard,
    )  # fmt: skip


def _of(part: Excerpt, number: int, source: Source) -> list[Line]:
    rows = list(lines(list(part.rows), number))
    if source.rank is None and not source.host:
        return rows
    return [
        line.but(rank=source.rank if line.rank is None else line.rank, host=line.host or source.host)
        for line in rows
    ]


_OWN_RANK = Pattern(r"Duplicate GPU detected : rank (\d{1,6}) and")


_TREES = Pattern(r"NCCL INFO Trees \[\d{1,4}\] [-\d/]{1,40}->(\d{1,6})->")
_SENDS = Pattern(
    r"NCCL INFO Channel [\d/]{1,9} ?: (\d{1,6})\[\w{1,16}\] -> (\d{1,6})\[\w{1,16}\] \[(send|receive)\]"
)


def _own_rank(text: str) -> int | None:
    """The rank an NCCL line states as its own."""
    if " nranks " in text:
        words = text.replace(",", " ").split()
        after = words[words.index("rank") + 1 :][:1] if "rank" in words else []
        return int(after[0][:9]) if after and after[0].isdecimal() else None
    if found := _TREES.search(text[:400]):
        return int(found[1])
    found = _SENDS.search(text[:400]) if "] [" in text else None
    return int(found[1] if found[3] == "send" else found[2]) if found else None


def named(told: Sequence[Line]) -> list[Line]:
    """Assign ranks to lines whose process stated its rank elsewhere: NCCL logs both."""
    ranks: dict[tuple[str, int | None, int | None], int] = {}
    for line in told:
        if line.place == "nccl" and (said := _own_rank(line.text)) is not None:
            ranks[line.host, line.pid, line.gpu] = said
    by_gpu = _one_node(told)
    by_pid = {(host, pid): rank for (host, pid, _), rank in ranks.items()}
    shared = len(by_pid) < len(ranks)  # one process with several GPUs
    result = []
    for line in told:
        if line.rank is None and (line.pid is not None or line.gpu is not None):
            rank = ranks.get((line.host, line.pid, line.gpu))
            if rank is None and not shared:
                rank = by_pid.get((line.host, line.pid))
            if rank is None and line.place == "nccl" and by_gpu:
                own = _OWN_RANK.search(line.text)
                rank = int(own[1]) if own else line.gpu  # on one machine rank and GPU number are the same
            line = line.but(rank=rank) if rank is not None else line
        result.append(line)
    return result


def _one_node(told: Sequence[Line]) -> bool:
    """Whether a GPU's number may stand for a rank: one machine, and no rank above its GPUs."""
    hosts = {line.host for line in told if line.place == "nccl" and line.host}
    gpus = [line.gpu for line in told if line.gpu is not None]
    ranks = [line.rank for line in told if line.rank is not None]
    return len(hosts) < 2 and max(ranks, default=0) <= max(max(gpus, default=0), 7)


def _sightings(
    told: list[Line], failures: Sequence[Failure], wording: Wording
) -> tuple[list[Sighting], frozenset[str]]:
    texts = [line.words for line in told]
    heard: set[str] = set()
    candidates: dict[tuple[int, int], Sign] = {}
    breaks = list(wrapped.seams(told, texts))
    broken = ((breaks[at][0], which) for at, which in _hits([text for _, text in breaks], wording.sieve))
    for index, which in (*_hits(texts, wording.sieve), *broken):
        literal = wording.literals[which]
        if literal in wording.remarks:
            heard.add(literal)
        for number, sign in wording.signs(literal):
            candidates[index, number] = sign
    remarks = frozenset(heard)
    inside = _inside(told, failures)
    found = (
        _matched(sign, index, told, texts, failures, inside.get(index), remarks)
        for (index, _), sign in sorted(candidates.items(), key=lambda item: item[0])
    )
    return [sighting for sighting in found if sighting is not None], remarks


def _hits(texts: Sequence[str], sieve: Sieve) -> Iterator[tuple[int, int]]:
    """Which literals are in which text, each once; scanned in portions to bound memory."""
    for first in range(0, len(texts), PORTION):
        encoded = [text.encode("utf-8", "replace") for text in texts[first : first + PORTION]]
        starts, at = [], 0
        for piece in encoded:
            starts.append(at)
            at += len(piece) + 1
        hits = {(bisect_right(starts, end - 1) - 1, which) for end, which in sieve.scan(b"\n".join(encoded))}
        yield from sorted((first + index, which) for index, which in hits)


def _inside(told: Sequence[Line], failures: Sequence[Failure]) -> dict[int, int]:
    """Which exception each line is part of."""
    speakers: dict[object, list[int]] = {}
    for i, line in enumerate(told):
        speakers.setdefault((line.source, line.rank, line.pid, line.role), []).append(i)
    numbers = {key: [told[i].number for i in indices] for key, indices in speakers.items()}
    found: dict[int, int] = {}
    for which, failure in enumerate(failures):
        key = (failure.source, failure.rank, failure.pid, failure.role)
        if key in speakers:
            low, high = bisect_left(numbers[key], failure.number), bisect_right(numbers[key], failure.last)
            found.update(dict.fromkeys(speakers[key][low:high], which))
    return found


def _matched(
    sign: Sign,
    index: int,
    told: Sequence[Line],
    texts: Sequence[str],
    failures: Sequence[Failure],
    failure: int | None,
    heard: frozenset[str],
) -> Sighting | None:
    line = told[index]
    if sign.place and not _said_in(sign.place, line, failures, failure):
        if sign.place == "derived" or sign.strength not in ("root", "symptom"):
            return None
        sign = sign.but(strength="clue")  # the same text from elsewhere: pasted, or repeated by a logger
    if (sign.also and not heard & set(sign.also)) or (sign.unless and heard & set(sign.unless)):
        return None
    text = texts[index] if not sign.over_lines else "\n".join(_beside(index, told, texts, 6, 16))
    captures = sign.match(text)
    if captures is None and not sign.over_lines:
        captures = wrapped.matched(sign, told, texts, index)
    if captures is None:
        return None
    if sign.near or sign.without:
        block = _block(index, told, texts, failures, failure)
        if (sign.near and not any(t in block for t in sign.near)) or any(t in block for t in sign.without):
            return None
    return Sighting(sign, captures, index, line, failure)


def _said_in(place: str, line: Line, failures: Sequence[Failure], failure: int | None) -> bool:
    if place != "exception":
        return line.place == place
    return failure is not None and line.number >= failures[failure].at


def _beside(index: int, told: Sequence[Line], texts: Sequence[str], before: int, after: int) -> list[str]:
    """The lines around one, of the same process."""
    line = told[index]
    kept = []
    for step, room in ((-1, before), (1, after)):
        i, found = index + step, list[str]()
        while (
            0 <= i < len(told)
            and len(found) < room
            and abs(i - index) < 40 * room
            and told[i].source == line.source
        ):
            if (told[i].rank, told[i].role) == (line.rank, line.role):
                found.append(texts[i])
            i += step
        kept.append(found)
    return [*reversed(kept[0]), texts[index], *kept[1]]


def _block(
    index: int, told: Sequence[Line], texts: Sequence[str], failures: Sequence[Failure], failure: int | None
) -> str:
    around = _beside(index, told, texts, NEAR, NEAR)
    role = told[index].role
    if role and not role.startswith(_NOT_RAY):
        around.append(f"ray::{role}")  # only Ray names a process by its class; the prefix was stripped
    if failure is not None:
        around += [failures[i].text for i in chain(failures, failure)]
    return "\n".join(around)


def chain(failures: Sequence[Failure], one: int) -> list[int]:
    """An exception with all it was raised from and all raised from it, first to last."""
    first = one
    while (before := failures[first].after) is not None and before < first:
        first = before
    links, last = [first], first
    for i in range(first + 1, min(first + 200, len(failures))):
        if failures[i].after == last:
            links.append(i)
            last = i
    return links
