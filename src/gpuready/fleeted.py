"""The nouns of a fleet: its nodes, what each answered, where they differ, and which of them is bad.

Apart from ``model.py`` so that a check of one machine does not pay for them. Sets of nodes are kept folded
(``n[0001-0016,0020]``, see ``gpuready.fleet.nodeset``), so that a report of ten thousand nodes stays small.
"""

from __future__ import annotations

from gpuready.model import EXIT, Contract, Facts, Finding, Noun, Report, Undecided, worst

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

ANSWERED, DEAD, SLOW, REFUSED, GARBLED = "answered", "dead", "slow", "refused", "garbled"
KINDS = (ANSWERED, DEAD, SLOW, REFUSED, GARBLED)
PASSED, FAILED = "passed", "failed"  # and SLOW: the outcomes of a pair


class Node(Noun):
    """One machine of the fleet, as its transport knows it."""

    name: str
    state: str = "up"  # up, down, drained, reserved, booting, unknown
    why: str = ""
    gpus: int = 0
    labels: dict[str, str] = {}  # partition, switch, and what else the transport tells
    address: str = ""


class Answer(Noun):
    """What came of asking one node: exactly one for each node and request."""

    node: str
    kind: str  # one of KINDS
    body: str = ""  # the node's one line of JSON, capped
    why: str = ""
    seconds: float = 0.0


class Group(Noun):
    """Nodes that share one value."""

    value: str
    nodes: str  # folded
    count: int


class Drift(Noun):
    """One fact in which nodes of a stratum differ from what most have, or from a reference."""

    facet: str
    key: str
    want: str  # of a split: the value of the larger part
    groups: tuple[Group, ...]  # those that differ, the largest first
    of: int  # how many nodes of the stratum answered
    stratum: str = ""
    against: str = "majority"  # majority, reference
    split: bool = False

    _nested = {"groups": Group}


class Outlier(Noun):
    """A node, or one GPU of it, whose figure is far from those of its equals, and was so again."""

    node: str
    figure: str
    value: float
    usual: float  # the median of the stratum
    share: float  # value / usual - 1: -0.08 is 8 % below
    score: float  # distance in robust standard deviations
    gpu: int | None = None
    tries: int = 1
    confirmed: bool = False
    stratum: str = ""


class Pair(Noun):
    """Two nodes that were to reduce together in one round, and what came of it."""

    first: str
    second: str
    round: int
    outcome: str  # passed, failed, slow
    seconds: float = 0.0
    rate: float = 0.0  # bytes a second, of the slowest GPU
    why: str = ""
    gpus: tuple[
        int, ...
    ] = ()  # the GPUs that failed or were slow, each with its like of the other node; none: all
    rates: tuple[float, ...] = ()  # one a GPU


class Suspect(Noun):
    """A node, a GPU, a link or a switch that the pairs accuse."""

    kind: str  # node, gpu, link, switch
    names: tuple[str, ...]
    failed: int = 0
    passed: int = 0
    confirmed: bool = False
    evidence: tuple[str, ...] = ()  # one sentence each
    gpu: int | None = None


class FleetReport(Noun):
    """The judgement of a fleet: what answered, what differs, what is slow, what is bad."""

    did: str  # check, prove, bench, drift, bisect
    transport: str
    nodes: int
    findings: tuple[Finding, ...] = ()
    undecided: tuple[Undecided, ...] = ()
    verdicts: dict[str, str] = {}  # verdict of the nodes' own answers, as far as it is believed -> node set
    states: dict[str, str] = {}  # answered, dead, slow, refused, garbled; drained, reserved ... -> node set
    reasons: dict[str, str] = {}  # why a node is in one of those, "kind: why" -> node set
    codes: dict[str, str] = {}  # code that nodes reported -> node set
    strata: dict[str, str] = {}  # stratum -> node set
    drift: tuple[Drift, ...] = ()
    outliers: tuple[Outlier, ...] = ()
    suspects: tuple[Suspect, ...] = ()
    exclude: str = ""  # node set to keep jobs away from
    selector: dict[str, str] = {}  # the same as a label selector of Ray, where its labels are known
    blames: dict[str, str] = {}  # code of the finding that put nodes on that list -> node set
    figures: dict[str, dict[str, tuple[float, ...]]] = {}  # figure -> node -> one value, or one a GPU
    pairs: tuple[Pair, ...] = ()
    rounds: int = 0
    seconds: float = 0.0
    run: str = ""
    strict: bool = False
    notes: tuple[str, ...] = ()

    _nested = {
        "findings": Finding,
        "undecided": Undecided,
        "drift": Drift,
        "outliers": Outlier,
        "suspects": Suspect,
        "pairs": Pair,
    }

    @property
    def verdict(self) -> str:
        """The one fold of a fleet: the worst of its own findings and of what its nodes say of themselves."""
        own = Report(Contract("fleet", ""), Facts(()), self.findings, self.undecided, strict=self.strict)
        return worst([own.verdict, *(self.verdicts or ("undecided",))])

    @property
    def exit(self) -> int:
        return EXIT[self.verdict]

    def fields(self) -> dict[str, Any]:
        """The fields of the JSON document, the verdict first."""
        return {"verdict": self.verdict, "exit": self.exit, **self.to_json()}
