"""Find which of many literals occur in a text in any letter case, and where, so that only those lines are examined further.

Hyperscan (a literal matcher that reads 16 and more bytes at a time) is used where its wheel is installed; it has wheels
for Linux on x86_64 and aarch64. What it compiles is kept in a cache, by its hash. Elsewhere few short anchors are searched with ``bytes.find``, and only the lines around an
anchor are searched for the literals themselves. Preparing either takes longer than searching a short log for each
literal, so short logs are searched that way. All find the same (tests/logs/test_literal_search.py).
"""

from __future__ import annotations

from bisect import bisect_right
from heapq import heapify, heappop, heappush
from itertools import accumulate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any, Protocol

    class DatabaseCache(Protocol):
        """Where compiled databases are kept, by name."""

        def load(self, name: str) -> bytes | None: ...

        def save(self, name: str, data: bytes) -> None: ...

    Hits = list[tuple[int, int]]

ANCHOR_BYTES = 6
"""Length of an anchor: short enough to be shared by many literals, long enough to be rare."""

WINDOW_BYTES, MAX_SHAPES = 4096, 100_000
"""Bytes around an anchor that are searched, and number of line shapes remembered."""


UNPREPARED_BYTES = 32 << 10
"""Bytes that are searched for one literal after the other before an engine is prepared."""

_DIGITS = b"0123456789"
_LOWER = bytes(range(256)).lower()


class LiteralSearch:
    """Finds literals. ``find_literals`` returns (end offset, literal index), in order of the text."""

    def __init__(self, literals: Sequence[str], engine: str = "auto", cache: DatabaseCache | None = None):
        self.literals = [literal.encode().lower() for literal in literals]
        self._cache = cache
        self.engine = engine
        self._scanner: Any = None
        self._unprepared_left = UNPREPARED_BYTES if engine == "auto" else 0
        if not self._unprepared_left:
            self._prepare_engine(engine)

    def _prepare_engine(self, engine: str) -> None:
        if engine in ("auto", "hyperscan") and self.literals:
            self._scanner = _load_hyperscan(self.literals, self._cache)
            if self._scanner is None and engine == "hyperscan":
                raise ValueError("hyperscan is not installed")
        if not self._scanner:
            self._anchors = choose_anchors(self.literals)
            self._barren: set[bytes] = set()
            bare = [literal.translate(None, _DIGITS) for literal in self.literals]
            self._numbered = [short for short, whole in zip(bare, self.literals, strict=True) if short != whole]
            self._numbers = choose_anchors(self._numbered)
        self.engine = "hyperscan" if self._scanner else "find"  # last: other threads use it from here on

    def find_literals(self, data: bytes) -> Hits:
        hits: Hits = []
        if len(data) <= self._unprepared_left:
            self._unprepared_left -= len(data)
            return sorted(_literals_in_span(data.lower(), 0, len(data), range(len(self.literals)), self.literals))
        if self.engine == "auto":
            self._unprepared_left = 0
            self._prepare_engine("auto")
        if self._scanner:
            self._scanner.scan(data, match_event_handler=_hit_collector(hits))
            hits.sort()
            return hits
        return self._search_new_shapes(data)

    def _search_new_shapes(self, data: bytes) -> Hits:
        """Search only lines of a new shape: without digits, most lines of a log are the same."""
        lines = data.split(b"\n")
        shapes = data.translate(_LOWER, _DIGITS).split(b"\n")
        fresh = [i for i, shape in enumerate(shapes) if shape not in self._barren]
        if not fresh:
            return []
        hits = _search_anchored(b"\n".join([lines[i] for i in fresh]).lower(), self._anchors, self.literals)
        starts = [0, *accumulate(len(line) + 1 for line in lines)]
        placed, with_hits = [], set()
        for at, end, which in _hits_by_line([lines[i] for i in fresh], hits):
            placed.append((starts[fresh[at]] + end, which))
            with_hits.add(fresh[at])
        self._remember_barren([shapes[i] for i in fresh if i not in with_hits])
        return sorted(placed)

    def _remember_barren(self, shapes: list[bytes]) -> None:
        """Remember shapes without hits, unless other digits could turn one into a literal."""
        if len(self._barren) > MAX_SHAPES:
            self._barren.clear()
        hits = _search_anchored(b"\n".join(shapes), self._numbers, self._numbered)
        could = {at for at, _, _ in _hits_by_line(shapes, hits)}
        self._barren.update(shape for i, shape in enumerate(shapes) if i not in could)


def _search_anchored(data: bytes, anchors: dict[bytes, list[int]], literals: Sequence[bytes]) -> Hits:
    found: set[tuple[int, int]] = set()
    for anchor, members in anchors.items():
        at = data.find(anchor)
        while at >= 0:
            begin = max(data.rfind(b"\n", max(at - WINDOW_BYTES, 0), at) + 1, at - WINDOW_BYTES, 0)
            end = data.find(b"\n", at, at + WINDOW_BYTES)
            end = min(at + WINDOW_BYTES, len(data)) if end < 0 else end
            found.update(_literals_in_span(data, begin, end, members, literals))
            at = data.find(anchor, max(end - len(anchor), at + 1))
    return sorted(found)


def _hits_by_line(lines: Sequence[bytes], hits: Hits) -> Iterator[tuple[int, int, int]]:
    """Hits in joined lines as (line index, offset in it, literal index)."""
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    for end, which in hits:
        at = bisect_right(starts, end - 1) - 1
        yield at, end - starts[at], which


def _literals_in_span(
    data: bytes, begin: int, end: int, members: Sequence[int], literals: Sequence[bytes]
) -> Iterable[Any]:
    line = data[begin:end]
    for member in members:
        at = line.find(literals[member])
        while at >= 0:
            yield begin + at + len(literals[member]), member
            at = line.find(literals[member], at + 1)


def choose_anchors(literals: Sequence[bytes]) -> dict[bytes, list[int]]:
    """Choose few anchors such that every literal contains one: greedily the one most of the rest share."""
    parts: dict[bytes, set[int]] = {}
    for number, literal in enumerate(literals):
        for i in range(max(len(literal) - ANCHOR_BYTES, 0) + 1):
            parts.setdefault(literal[i : i + ANCHOR_BYTES], set()).add(number)
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


def _hit_collector(hits: Hits) -> Any:
    def note_hit(which: int, start: int, end: int, flags: int, context: object) -> None:
        hits.append((end, which))

    return note_hit


def _load_hyperscan(literals: Sequence[bytes], cache: DatabaseCache | None) -> Any:
    """A database of the literals, from the cache where it has one, or None where Hyperscan is missing or does not work."""
    try:
        hyperscan = __import__("hyperscan")  # by name: the type checker may not have it
    except ImportError:
        return None
    name = _database_name(hyperscan, literals) if cache else ""
    try:
        kept = cache.load(name) if cache else None
        if kept is not None:
            return _restore_database(hyperscan, kept)
    except Exception:  # of another processor, or damaged: compiled again
        pass
    try:
        base = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        numbers = list(range(len(literals)))
        flags = hyperscan.HS_FLAG_CASELESS
        base.compile(expressions=list(literals), ids=numbers, elements=len(literals), literal=True, flags=flags)
        if cache:
            cache.save(name, hyperscan.dumpb(base))
    except Exception:  # optional
        return None
    return base


def _restore_database(hyperscan: Any, data: bytes) -> Any:
    base = hyperscan.loadb(data, hyperscan.HS_MODE_BLOCK)
    base.scratch = hyperscan.Scratch(base)
    return base


def _database_name(hyperscan: Any, literals: Sequence[bytes]) -> str:
    """The hash of what a database is made of."""
    import hashlib

    made_of = b"\0".join([hyperscan.__version__.encode(), *literals])
    return hashlib.sha256(made_of).hexdigest()
