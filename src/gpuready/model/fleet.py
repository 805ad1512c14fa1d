"""Records of a fleet: its nodes, their answers, where they differ, and which are bad.

Separate from ``model.py``, so that a check of one machine does not import them. Sets of nodes are folded
(``n[0001-0016,0020]``, see ``gpuready.model.node_names``), so that a report on ten thousand nodes stays small.
"""

from __future__ import annotations

from typing import Any

from gpuready.model import EXIT_CODES, Contract, Facts, Finding, Record, Report, UndecidedRule, worst_verdict
from gpuready.model.record import field

ANSWER_KINDS = ("answered", "dead", "slow", "absent", "refused", "busy", "garbled", "not read")
ANSWERED, DEAD, SLOW, ABSENT, REFUSED, BUSY, GARBLED, UNREAD = ANSWER_KINDS
OUT_OF_REACH = (DEAD, ABSENT, REFUSED, BUSY)
NOT_LET_IN = (REFUSED, BUSY, UNREAD)
"""Kinds that say nothing against a node: nobody was let in, or not now, or its recording cannot be read."""
ENVIRONMENTS = "environments"
"""In the place of a transport: environments of one machine, each as a node."""
SILENT_STATES = ANSWER_KINDS[1:]
PASSED, FAILED = "passed", "failed"  # and SLOW: the outcomes of a pair


class FleetNode(Record):
    """One machine of the fleet, as its transport knows it."""

    name: str
    state: str = "up"  # up, down, drained, reserved, booting, unknown
    why: str = ""
    gpus: int = 0
    labels: dict[str, str] = field(default_factory=dict)  # partition, and others from the transport
    address: str = ""


class NodeAnswer(Record):
    """The result of asking one node: exactly one for each node and request."""

    node: str
    kind: str  # one of ANSWER_KINDS
    body: str = ""  # the node's line of JSON, limited in size
    why: str = ""
    seconds: float = 0.0
    for_now: bool = False  # it may answer when it is asked again


class NodeGroup(Record):
    """Nodes that share one value."""

    value: str
    nodes: str  # folded
    count: int


class Drift(Record):
    """A fact in which nodes of a peer group differ from the majority or from a reference."""

    area: str
    key: str
    want: str  # of a split: the value of the larger part
    groups: tuple[NodeGroup, ...]  # the deviating groups, the largest first
    of: int  # number of nodes of the peer group that answered
    peers: str = ""
    against: str = "majority"  # majority, reference
    split: bool = False


class Outlier(Record):
    """A node or GPU whose figure is repeatedly far from those of its equals."""

    node: str
    figure: str
    value: float
    usual: float  # the median of the peer group
    share: float  # value / usual - 1: -0.08 is 8 % below
    score: float  # distance in robust standard deviations
    gpu: int | None = None
    tries: int = 1
    confirmed: bool = False
    peers: str = ""


class NodePair(Record):
    """Two nodes that ran an all-reduce together in one round, and the outcome."""

    first: str
    second: str
    round: int
    outcome: str  # passed, failed, slow
    seconds: float = 0.0
    rate: float = 0.0  # bytes a second, of the slowest GPU
    why: str = ""
    gpus: tuple[int, ...] = ()  # GPUs that failed or were slow with their peer GPU; empty: all
    rates: tuple[float, ...] = ()  # one a GPU


class FleetSuspect(Record):
    """A node, GPU or link that the pairs accuse."""

    kind: str  # node, gpu, link
    names: tuple[str, ...]
    failed: int = 0
    passed: int = 0
    confirmed: bool = False
    evidence: tuple[str, ...] = ()  # one sentence each
    gpu: int | None = None


class FleetReport(Record):
    """The result for a fleet: what answered, differs, is slow or is bad."""

    did: str  # check, prove, bench, drift, bisect
    transport: str
    nodes: int
    findings: tuple[Finding, ...] = ()
    undecided: tuple[UndecidedRule, ...] = ()
    verdicts: dict[str, str] = field(default_factory=dict)  # believed verdict of the nodes themselves -> node set
    states: dict[str, str] = field(
        default_factory=dict
    )  # answered, dead, slow, absent (no environment), refused, busy, garbled, not read; drained, reserved ... -> node set
    reasons: dict[str, str] = field(default_factory=dict)  # "kind: why" -> node set
    codes: dict[str, str] = field(default_factory=dict)  # code that nodes reported -> node set
    meanings: dict[str, str] = field(default_factory=dict)  # code that nodes reported -> title of its rule
    peers: dict[str, str] = field(default_factory=dict)  # peers -> node set
    drift: tuple[Drift, ...] = ()
    outliers: tuple[Outlier, ...] = ()
    suspects: tuple[FleetSuspect, ...] = ()
    exclude: str = ""  # node set to keep jobs away from
    selector: dict[str, str] = field(default_factory=dict)  # the same as a Ray label selector, if its labels are known
    blames: dict[str, str] = field(default_factory=dict)  # code of the finding that excludes them -> node set
    figures: dict[str, dict[str, tuple[float, ...]]] = field(
        default_factory=dict
    )  # figure -> node -> one value, or one for each GPU
    units: dict[str, str] = field(default_factory=dict)  # figure -> FLOP/s, B/s, s
    pairs: tuple[NodePair, ...] = ()
    rounds: int = 0
    seconds: float = 0.0
    run: str = ""
    strict: bool = False
    notes: tuple[str, ...] = ()
    gpus: int = 0
    judged: tuple[str, ...] = ()  # what the nodes were judged by: trl 1.16
    environment: str = ""  # which one was looked at
    reference: str = ""  # the recording that the nodes were compared with
    next: tuple[str, ...] = ()  # the command that shows all of one node with problems, where one does from here

    @property
    def verdict(self) -> str:
        """The worst of the fleet's findings and of its nodes' own verdicts; undecided where a node let nobody in."""
        own = Report(Contract("fleet", ""), Facts(()), self.findings, self.undecided, strict=self.strict)
        unknown = ["undecided"] if any(kind in self.states for kind in NOT_LET_IN) or self._has_unclear_outlier else []
        return worst_verdict([own.verdict, *(self.verdicts or ("undecided",)), *unknown])

    @property
    def _has_unclear_outlier(self) -> bool:
        return any(not one.confirmed for one in self.outliers)

    @property
    def exit(self) -> int:
        return EXIT_CODES[self.verdict]

    def fields(self) -> dict[str, Any]:
        """Fields of the JSON document, the verdict first."""
        return {"verdict": self.verdict, "exit": self.exit, **self.to_json()}
