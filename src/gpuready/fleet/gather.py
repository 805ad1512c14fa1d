"""Collect the nodes' answers: duplicates, late, out of order, replayed, from older versions, or false.

The result does not depend on the order: of two reports of one node the one of higher precedence is kept, and
of two failures the one whose kind comes first in ANSWER_KINDS. Of a healthy node only fingerprints are kept.
"""

from __future__ import annotations

from gpuready.fleet.record import Record, Refusal, newer, read
from gpuready.fleeted import ANSWERED, GARBLED, KINDS, REFUSED, Answer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpuready.fleet.journal import Journal
    from gpuready.fleeted import Node

    Details = dict[str, dict[str, dict[str, object]]]  # node -> facet -> key -> value
    Tries = dict[str, dict[tuple[str, int | None], dict[int, float]]]  # figure -> (node, gpu) -> try -> value

SLACK = 1.0
"""Seconds of clock difference that are ignored."""


class Gather:
    """The answers of one run. ``add_answer`` is thread-safe."""

    def __init__(
        self,
        nodes: Iterable[Node],
        run: str = "",
        journal: Journal | None = None,
        clock: Callable[[], float] | None = None,
    ):
        import threading
        import time

        self.nodes = {node.name: node for node in nodes}
        self.run, self.journal, self.clock = run, journal, clock or time.time
        self.records: dict[str, Record] = {}
        self.silent: dict[str, tuple[str, str]] = {}  # node -> kind, why
        self.details: Details = {}
        self.tries: Tries = {}
        self.skews: dict[str, float] = {}
        self.claims: dict[str, set[str]] = {}  # name in a report -> nodes that were asked
        self.conflicts: dict[str, set[str]] = {}  # node -> other nodes whose name it reported
        self.said: dict[
            str, set[tuple[str, tuple[str, ...]]]
        ] = {}  # node -> several verdicts with codes
        self.pairs: list[tuple[str, dict[str, object]]] = []
        self.newer: set[str] = set()
        self._lock = threading.Lock()
        if journal is not None:
            self._replay(journal)

    def heard(self, answer: Answer) -> None:
        """Add one answer. Never raises for its content."""
        now = self.clock()
        with self._lock:
            if answer.node not in self.nodes:
                return
            taken = self._take(answer, now)
            if taken and self.journal is not None:
                self.journal.note(answer, now)

    def missing(self) -> list[Node]:
        """Return the nodes without an answer; after a crash only those not in the journal."""
        return [node for name, node in self.nodes.items() if name not in self.records]

    def state(self, name: str) -> tuple[str, str]:
        """Return how a node answered or failed to, and why."""
        if name in self.records:
            return ANSWERED, ""
        node = self.nodes[name]
        otherwise = (node.state, node.why) if node.state != "up" else ("slow", "nothing came back")
        return self.silent.get(name, otherwise)

    # -- one answer ----------------------------------------------------------------------------------------

    def _take(self, answer: Answer, now: float) -> bool:
        """Return whether the answer contained something new."""
        if answer.kind != ANSWERED:
            return self._lost(answer.node, answer.kind if answer.kind in KINDS else GARBLED, answer.why)
        try:
            record = read(answer.body)
            self._belongs(answer.node, record)
        except ValueError as error:
            kind = REFUSED if isinstance(error, Refusal) else GARBLED
            return self._lost(answer.node, kind, str(error))
        if record.run and self.run and record.run != self.run:
            return self._lost(answer.node, GARBLED, "its answer belongs to another run")
        return self._keep(answer, record, now)

    def _lost(self, name: str, kind: str, why: str) -> bool:
        had = self.silent.get(name)
        if had is not None and (KINDS.index(had[0]), had[1]) <= (KINDS.index(kind), why):
            return False
        self.silent[name] = kind, why[:300]
        return True

    def _belongs(self, asked: str, record: Record) -> None:
        """Reject a report under another node's name; accept an unknown name as an alias."""
        claimed = record.node
        if _same(claimed, asked):
            return
        self.claims.setdefault(claimed, set()).add(asked)
        owner = self._owner(claimed)
        if owner is not None and owner != asked:
            self.conflicts.setdefault(asked, set()).add(owner)
            raise ValueError(f"it says that it is {claimed[:80]}, which is another node")

    def _owner(self, claimed: str) -> str | None:
        if claimed in self.nodes:
            return claimed
        short = claimed.partition(".")[0]
        return short if short in self.nodes else None

    def _keep(self, answer: Answer, record: Record, now: float) -> bool:
        name = answer.node
        if record.details is not None or record.pair is not None:
            return self._keep_more(name, record)
        if record.at:  # a late copy looks older than it is: keep the smallest skew
            skews = (_skew(record.at, now, answer.seconds), self.skews.get(name, 1e18))
            self.skews[name] = min(skews, key=lambda skew: (abs(skew), skew))
        self._figures(name, record)
        had = self.records.get(name)
        if had is not None and had.rank == record.rank:
            return False
        if record.verdict and had is not None and had.verdict:
            self.said.setdefault(name, {(had.verdict, had.codes)}).add((record.verdict, record.codes))
        if newer(record):
            self.newer.add(name)
        record.figures = None  # kept in measured_tries
        if had is None or record.rank > had.rank:
            self.records[name] = record
        return True

    def _keep_more(self, name: str, record: Record) -> bool:
        if record.pair is not None:
            if (name, record.pair) in self.pairs:
                return False
            self.pairs.append((name, record.pair))
        if record.details is not None:
            mine = self.details.setdefault(name, {})
            new = {facet: row for facet, row in record.details.items() if facet not in mine}
            mine.update(new)
            return bool(new)
        return True

    def _figures(self, name: str, record: Record) -> None:
        for figure, row in (record.figures or {}).items():
            table = self.tries.setdefault(figure, {})
            for at, value in enumerate(row):
                table.setdefault((name, at if len(row) > 1 else None), {}).setdefault(record.attempt, value)

    def _replay(self, journal: Journal) -> None:
        """Load the answers that a crashed controller had received."""
        for answer, at in journal.entries():
            if answer.node in self.nodes:
                self._take(answer, at)

    # -- conflicts -----------------------------------------------------------------------------------------

    def flaps(self) -> dict[str, tuple[str, ...]]:
        """Nodes that reported different verdicts in one run, with all of them."""
        differ = {name: {verdict for verdict, _ in said} for name, said in self.said.items()}
        return {name: tuple(sorted(said)) for name, said in differ.items() if len(said) > 1}

    def collisions(self) -> list[tuple[str, tuple[str, ...]]]:
        """List names and GPUs that several nodes claim."""
        found: list[tuple[str, tuple[str, ...]]] = [
            (f"the name of {owner}", (asked, owner))
            for asked, owners in self.conflicts.items()
            for owner in owners
        ]
        for claimed, askers in self.claims.items():
            if len(askers) > 1 and self._owner(claimed) is None:
                found.append((f"the name {claimed[:80]}", tuple(sorted(askers))))
        return sorted([*found, *((what, nodes) for nodes, what in self._shared_gpus().items())])

    def _shared_gpus(self) -> dict[tuple[str, ...], str]:
        """Return groups of nodes that show the same GPU. A sorted array takes a tenth of a dictionary's memory."""
        from array import array

        names = list(self.records)
        marks = array("Q")
        for at, name in enumerate(names):
            ids = self.records[name].ids
            marks.extend({_mark(ids[i : i + 8]) << 20 | at for i in range(0, len(ids), 8)})
        groups: dict[int, set[int]] = {}
        last = None
        for mark in sorted(marks):
            if last is not None and last >> 20 == mark >> 20:
                groups.setdefault(mark >> 20, set()).update((last & 0xFFFFF, mark & 0xFFFFF))
            last = mark
        shared: dict[tuple[str, ...], int] = {}
        for members in groups.values():
            nodes = tuple(sorted(names[at] for at in members))
            shared[nodes] = shared.get(nodes, 0) + 1
        return {nodes: f"{count} GPU{'s' if count > 1 else ''}" for nodes, count in shared.items()}


def _mark(text: str) -> int:
    from zlib import crc32

    data = text.encode()
    return crc32(data) << 12 | crc32(data[::-1]) & 0xFFF


def _same(claimed: str, asked: str) -> bool:
    return claimed == asked or claimed.partition(".")[0] == asked.partition(".")[0]


def _skew(at: float, now: float, seconds: float) -> float:
    """Return how far a node's clock is off: it wrote ``at`` while we waited for the answer."""
    early, late = now - seconds - SLACK, now + SLACK
    return round(at - late, 2) if at > late else round(at - early, 2) if at < early else 0.0
