"""Find which of many literals occur in a text, and where, so that only lines with one are examined further.

Hyperscan (a literal matcher that reads 16 and more bytes at a time) is used where its wheel is installed; it has wheels
for Linux on x86_64 and aarch64. Elsewhere few short anchors are searched with ``bytes.find``, and only the lines around an
anchor are searched for the literals themselves. Preparing either takes longer than searching a short log for each
literal, so short logs are searched that way. All find the same (tests/logs/test_sieve.py).
"""

from __future__ import annotations

from bisect import bisect_right
from heapq import heapify, heappop, heappush
from itertools import accumulate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    Hits = list[tuple[int, int]]

ANCHOR = 6
"""Length of an anchor: short enough to be shared by many literals, long enough to be rare."""

WINDOW, SHAPES = 4096, 100_000
"""Bytes around an anchor that are searched, and number of line shapes remembered."""


SHORT = 32 << 10
"""Bytes that are searched for one literal after the other before an engine is prepared."""

_DIGITS = b"0123456789"


class Sieve:
    """Finds literals. ``find_literals`` returns (end offset, literal index), in order of the text."""

    def __init__(self, literals: Sequence[str], engine: str = "auto"):
        self.literals = [literal.encode() for literal in literals]
        self.engine = engine
        self._scanner: Any = None
        self._short = SHORT if engine == "auto" else 0
        if not self._short:
            self._ready(engine)

    def _ready(self, engine: str) -> None:
        if engine in ("auto", "hyperscan") and self.literals:
            self._scanner = _hyperscan(self.literals)
            if self._scanner is None and engine == "hyperscan":
                raise ValueError("hyperscan is not installed")
        if not self._scanner:
            self._anchors = cover(self.literals)
            self._barren: set[bytes] = set()
            bare = [literal.translate(None, _DIGITS) for literal in self.literals]
            self._numbered = [
                short for short, whole in zip(bare, self.literals, strict=True) if short != whole
            ]
            self._numbers = cover(self._numbered)
        self.engine = "hyperscan" if self._scanner else "find"  # last: other threads use it from here on

    def scan(self, data: bytes) -> Hits:
        hits: Hits = []
        if len(data) <= self._short:
            self._short -= len(data)
            return sorted(_inside(data, 0, len(data), range(len(self.literals)), self.literals))
        if self.engine == "auto":
            self._short = 0
            self._ready("auto")
        if self._scanner:
            self._scanner.scan(data, match_event_handler=_noting(hits))
            hits.sort()
            return hits
        return self._search(data)

    def _search(self, data: bytes) -> Hits:
        """Search only lines of a new shape: without digits, most lines of a log are the same."""
        lines = data.split(b"\n")
        shapes = data.translate(None, _DIGITS).split(b"\n")
        fresh = [i for i, shape in enumerate(shapes) if shape not in self._barren]
        if not fresh:
            return []
        hits = _anchored(b"\n".join([lines[i] for i in fresh]), self._anchors, self.literals)
        starts = [0, *accumulate(len(line) + 1 for line in lines)]
        placed, told = [], set()
        for at, end, which in _by_line([lines[i] for i in fresh], hits):
            placed.append((starts[fresh[at]] + end, which))
            told.add(fresh[at])
        self._learn([shapes[i] for i in fresh if i not in told])
        return sorted(placed)

    def _learn(self, shapes: list[bytes]) -> None:
        """Remember shapes without hits, unless other digits could turn one into a literal."""
        if len(self._barren) > SHAPES:
            self._barren.clear()
        hits = _anchored(b"\n".join(shapes), self._numbers, self._numbered)
        could = {at for at, _, _ in _by_line(shapes, hits)}
        self._barren.update(shape for i, shape in enumerate(shapes) if i not in could)


def _anchored(data: bytes, anchors: dict[bytes, list[int]], literals: Sequence[bytes]) -> Hits:
    found: set[tuple[int, int]] = set()
    for anchor, members in anchors.items():
        at = data.find(anchor)
        while at >= 0:
            begin = max(data.rfind(b"\n", max(at - WINDOW, 0), at) + 1, at - WINDOW, 0)
            end = data.find(b"\n", at, at + WINDOW)
            end = min(at + WINDOW, len(data)) if end < 0 else end
            found.update(_inside(data, begin, end, members, literals))
            at = data.find(anchor, max(end - len(anchor), at + 1))
    return sorted(found)


def _by_line(lines: Sequence[bytes], hits: Hits) -> Iterator[tuple[int, int, int]]:
    """Hits in joined lines as (line index, offset in it, literal index)."""
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    for end, which in hits:
        at = bisect_right(starts, end - 1) - 1
        yield at, end - starts[at], which


def _inside(
    data: bytes, begin: int, end: int, members: Sequence[int], literals: Sequence[bytes]
) -> Iterable[Any]:
    line = data[begin:end]
    for member in members:
        at = line.find(literals[member])
        while at >= 0:
            yield begin + at + len(literals[member]), member
            at = line.find(literals[member], at + 1)


def cover(literals: Sequence[bytes]) -> dict[bytes, list[int]]:
    """Choose few anchors such that every literal contains one: greedily the one most of the rest share."""
    parts: dict[bytes, set[int]] = {}
    for number, literal in enumerate(literals):
        for i in range(max(len(literal) - ANCHOR, 0) + 1):
            parts.setdefault(literal[i : i + ANCHOR], set()).add(number)
    left, chosen = set(range(len(literals))), dict[bytes, list[int]]()
    heap = [(-len(members), part) for part, members in parts.items()]
    heapify(heap)
    while left:
        size, part = heappop(heap)
        members = parts[part] & left
        if len(members) < -size:  # some members are already covered: queue it again
            if members:
                heappush(heap, (-len(members), part))
            continue
        chosen[part] = sorted(members)
        left -= members
    return chosen


def _noting(hits: Hits) -> Any:
    def note(which: int, start: int, end: int, flags: int, context: object) -> None:
        hits.append((end, which))

    return note


def _hyperscan(literals: Sequence[bytes]) -> Any:
    """A compiled database, or None where Hyperscan is missing or does not work on this processor."""
    try:
        hyperscan = __import__("hyperscan")  # by name: the type checker may not have it
        base = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        base.compile(
            expressions=list(literals), ids=list(range(len(literals))), elements=len(literals), literal=True
        )
    except Exception:  # optional
        return None
    return base
