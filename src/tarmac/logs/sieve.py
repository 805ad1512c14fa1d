"""The sieve: which of many literals stand in a text, and where. Nothing costly sees a line that it lets through.

Hyperscan (a literal matcher that reads 16 and more bytes at a time) does it where its wheel is installed; it has wheels for
Linux on x86_64 and aarch64. Elsewhere a cover of few short anchors is searched with ``bytes.find``, and only the
lines around an anchor are looked at for the literals themselves. Both find the same (tests/logs/test_sieve.py).
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    Hits = list[tuple[int, int]]

ANCHOR = 6
"""Letters of an anchor: short enough to be shared by many literals, long enough to be rare."""


class Sieve:
    """Finds literals. ``scan`` gives (where it ends, which literal), in order of the text."""

    def __init__(self, literals: Sequence[str], engine: str = "auto"):
        self.literals = [literal.encode() for literal in literals]
        self.engine = engine
        self._scanner: Any = None
        if engine in ("auto", "hyperscan") and self.literals:
            self._scanner = _hyperscan(self.literals)
            if self._scanner is None and engine == "hyperscan":
                raise ValueError("hyperscan is not installed")
        self.engine = "hyperscan" if self._scanner else "find"
        if not self._scanner:
            self._anchors = cover(self.literals)

    def scan(self, data: bytes) -> Hits:
        hits: Hits = []
        if self._scanner:
            self._scanner.scan(data, match_event_handler=_noting(hits))
            hits.sort()
            return hits
        return self._search(data)

    def _search(self, data: bytes) -> Hits:
        found: set[tuple[int, int]] = set()
        for anchor, members in self._anchors.items():
            done = -1
            at = data.find(anchor)
            while at >= 0:
                begin, end = data.rfind(b"\n", 0, at) + 1, data.find(b"\n", at)
                end = len(data) if end < 0 else end
                begin = max(begin, at - 4096)
                end = min(end, at + 4096)
                if end > done:
                    found.update(_inside(data, max(begin, 0), end, members, self.literals))
                    done = end
                at = data.find(anchor, max(end, at + 1))
        return sorted(found)


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
    """Few anchors such that every literal contains one: greedily the one that most of the rest share."""
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
        if len(members) < -size:  # others have taken some of them: it has to queue again
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
    """A compiled database, or None where there is no Hyperscan or it does not work on this processor."""
    try:
        hyperscan = __import__("hyperscan")  # by name: the type checker need not have it
        base = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
        base.compile(
            expressions=list(literals), ids=list(range(len(literals))), elements=len(literals), literal=True
        )
    except Exception:  # the sieve works without it
        return None
    return base
