"""Collect the nodes' answers: duplicates, late, out of order, replayed, from older versions, or false.

The result does not depend on the order: of two reports of one node the one of higher precedence is kept, and
of two failures the one whose kind comes first in ANSWER_KINDS. Of a healthy node only fingerprints are kept.
"""

import threading
import time
from collections.abc import Callable, Iterable

from gpuready.fleet.journal import AnswerJournal
from gpuready.fleet.node_report import NodeRefusal, NodeReport, is_newer_schema, parse_node_report
from gpuready.model.fleet import ANSWER_KINDS, ANSWERED, GARBLED, REFUSED, FleetNode, NodeAnswer

Details = dict[str, dict[str, dict[str, object]]]  # node -> area -> key -> value
MeasuredTries = dict[str, dict[tuple[str, int | None], dict[int, float]]]  # figure -> (node, gpu) -> try -> value
CLOCK_SLACK = 1.0
"""Seconds of clock difference that are ignored."""


class AnswerCollector:
    """The answers of one run. ``add_answer`` is thread-safe."""

    def __init__(
        self,
        nodes: Iterable[FleetNode],
        run: str = "",
        journal: AnswerJournal | None = None,
        clock: Callable[[], float] | None = None,
    ):
        self.nodes = {node.name: node for node in nodes}
        self.run, self.journal, self.clock = run, journal, clock or time.time
        self.records: dict[str, NodeReport] = {}
        self.failures: dict[str, tuple[str, str]] = {}  # node -> kind, why
        self.details: Details = {}
        self.measured_tries: MeasuredTries = {}
        self.skews: dict[str, float] = {}
        self.claims: dict[str, set[str]] = {}  # name in a report -> nodes that were asked
        self.conflicts: dict[str, set[str]] = {}  # node -> other nodes whose name it reported
        self.several_verdicts: dict[str, set[tuple[str, tuple[str, ...]]]] = {}  # node -> several verdicts with codes
        self.newer_nodes: set[str] = set()
        self._lock = threading.Lock()
        if journal is not None:
            for answer, at in journal.read_entries():  # of a controller that crashed
                if answer.node in self.nodes:
                    self._process_answer(answer, at)

    def add_answer(self, answer: NodeAnswer) -> None:
        """Add one answer. Never raises for its content."""
        now = self.clock()
        with self._lock:
            if answer.node not in self.nodes:
                return
            is_new = self._process_answer(answer, now)
            if is_new and self.journal is not None:
                self.journal.add_answer(answer, now)

    def list_unanswered(self) -> list[FleetNode]:
        """Return the nodes without an answer; after a crash only those not in the journal."""
        return [node for name, node in self.nodes.items() if name not in self.records]

    def node_state(self, name: str) -> tuple[str, str]:
        """Return how a node answered or failed to, and why."""
        if name in self.records:
            return ANSWERED, ""
        node = self.nodes[name]
        default = (node.state, node.why) if node.state != "up" else ("slow", "nothing came back")
        return self.failures.get(name, default)

    # -- one answer ----------------------------------------------------------------------------------------

    def _process_answer(self, answer: NodeAnswer, now: float) -> bool:
        """Return whether the answer contained something new."""
        if answer.kind != ANSWERED:
            return self._record_failure(
                answer.node, answer.kind if answer.kind in ANSWER_KINDS else GARBLED, answer.why
            )
        try:
            report = parse_node_report(answer.body)
            self._check_node_name(answer.node, report)
        except ValueError as error:
            kind = REFUSED if isinstance(error, NodeRefusal) else GARBLED
            return self._record_failure(answer.node, kind, str(error))
        if report.run and self.run and report.run != self.run:
            return self._record_failure(answer.node, GARBLED, "its answer belongs to another run")
        return self._store_report(answer, report, now)

    def _record_failure(self, name: str, kind: str, why: str) -> bool:
        previous = self.failures.get(name)
        if previous is not None and (ANSWER_KINDS.index(previous[0]), previous[1]) <= (ANSWER_KINDS.index(kind), why):
            return False
        self.failures[name] = kind, why[:300]
        return True

    def _check_node_name(self, asked_node: str, report: NodeReport) -> None:
        """Reject a report under another node's name; accept an unknown name as an alias."""
        claimed = report.node
        if claimed.partition(".")[0] == asked_node.partition(".")[0]:
            return
        self.claims.setdefault(claimed, set()).add(asked_node)
        owner = self._owner_of_name(claimed)
        if owner is not None and owner != asked_node:
            self.conflicts.setdefault(asked_node, set()).add(owner)
            raise ValueError(f"it says that it is {claimed[:80]}, which is another node")

    def _owner_of_name(self, claimed: str) -> str | None:
        if claimed in self.nodes:
            return claimed
        short = claimed.partition(".")[0]
        return short if short in self.nodes else None

    def _store_report(self, answer: NodeAnswer, report: NodeReport, now: float) -> bool:
        name = answer.node
        if report.details is not None:
            return self._store_details(name, report.details)
        if report.at:  # a late copy looks older than it is: keep the smallest skew
            skews = (_clock_skew(report.at, now, answer.seconds), self.skews.get(name, 1e18))
            self.skews[name] = min(skews, key=lambda skew: (abs(skew), skew))
        self._store_figures(name, report)
        previous = self.records.get(name)
        if previous is not None and previous.sort_precedence == report.sort_precedence:
            return False
        if report.verdict and previous is not None and previous.verdict:
            self.several_verdicts.setdefault(name, {(previous.verdict, previous.codes)}).add(
                (report.verdict, report.codes)
            )
        if is_newer_schema(report):
            self.newer_nodes.add(name)
        report = report.replace(figures=None)  # kept in measured_tries
        if previous is None or report.sort_precedence > previous.sort_precedence:
            self.records[name] = report
        return True

    def _store_details(self, name: str, details: dict[str, dict[str, object]]) -> bool:
        mine = self.details.setdefault(name, {})
        new = {area: row for area, row in details.items() if area not in mine}
        mine.update(new)
        return bool(new)

    def _store_figures(self, name: str, report: NodeReport) -> None:
        for figure, row in (report.figures or {}).items():
            table = self.measured_tries.setdefault(figure, {})
            for at, value in enumerate(row):
                table.setdefault((name, at if len(row) > 1 else None), {}).setdefault(report.attempt, value)

    # -- conflicts -----------------------------------------------------------------------------------------

    def conflicting_verdicts(self) -> dict[str, tuple[str, ...]]:
        """Nodes that reported different verdicts in one run, with all of them."""
        differ = {name: {verdict for verdict, _ in verdicts} for name, verdicts in self.several_verdicts.items()}
        return {name: tuple(sorted(verdicts)) for name, verdicts in differ.items() if len(verdicts) > 1}

    def find_collisions(self) -> list[tuple[str, tuple[str, ...]]]:
        """List names and GPUs that several nodes claim."""
        collisions: list[tuple[str, tuple[str, ...]]] = [
            (f"the name of {owner}", (asked_node, owner))
            for asked_node, owners in self.conflicts.items()
            for owner in owners
        ]
        for claimed, askers in self.claims.items():
            if len(askers) > 1 and self._owner_of_name(claimed) is None:
                collisions.append((f"the name {claimed[:80]}", tuple(sorted(askers))))
        return sorted([*collisions, *((what, nodes) for nodes, what in self._shared_gpus().items())])

    def _shared_gpus(self) -> dict[tuple[str, ...], str]:
        """Return groups of nodes that show the same GPU."""
        first: dict[str, str] = {}
        nodes_of: dict[str, set[str]] = {}
        for name, record in self.records.items():
            for gpu in (record.ids[at : at + 8] for at in range(0, len(record.ids), 8)):
                if (other := first.setdefault(gpu, name)) != name:
                    nodes_of.setdefault(gpu, {other}).add(name)
        shared: dict[tuple[str, ...], int] = {}
        for members in nodes_of.values():
            nodes = tuple(sorted(members))
            shared[nodes] = shared.get(nodes, 0) + 1
        return {nodes: f"{count} GPU{'s' if count > 1 else ''}" for nodes, count in shared.items()}


def _clock_skew(at: float, now: float, seconds: float) -> float:
    """Return how far a node's clock is off: it wrote ``at`` while we waited for the answer."""
    early, late = now - seconds - CLOCK_SLACK, now + CLOCK_SLACK
    return round(at - late, 2) if at > late else round(at - early, 2) if at < early else 0.0
