"""The nouns: what is known, what is asked, what is wrong, what to do. Their fields are the keys of the JSON."""

from __future__ import annotations

from gpuready.noun import Noun as Noun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any, Protocol

    from typing_extensions import Self


SCHEMA = 1
"""The version of every JSON document that gpuready writes; raised when a field changes its meaning."""

NOT_STATED = "not stated"
"""The gap of a fact that a what-if leaves open: neither absent nor unknown."""


class Fact(Noun):
    """One thing known of the world, with its evidence.

    ``gap`` set: unknown, and why. ``value`` None without gap: looked, and not there.
    """

    key: str
    value: Any
    source: str = ""
    how: str = "read"  # read, run, log, or stated (a what-if or a flag)
    gap: str = ""

    @classmethod
    def from_json(cls, data: object) -> Self:
        fact = super().from_json(data)
        for field in ("key", "source", "how", "gap"):
            if not isinstance(getattr(fact, field), str):
                raise ValueError(f"the {field!r} of a fact must be text")
        return fact


class Unknown(Exception):
    """A rule asked for a fact that nobody could see; the judge calls the rule undecided."""

    def __init__(self, fact: Fact):
        super().__init__(f"{fact.key}: {fact.gap}")
        self.fact = fact


class Facts:
    """An immutable mapping of key to Fact, for one host."""

    __slots__ = ("_facts", "host", "otherwise")

    def __init__(self, facts: Iterable[Fact], host: str = "", otherwise: str = "nothing looked for it"):
        self._facts: dict[str, Fact] = {f.key: f for f in facts}
        self.host = host
        self.otherwise = otherwise  # the gap of every fact that is not among these

    def __iter__(self) -> Iterator[Fact]:
        return iter(self._facts.values())

    def __len__(self) -> int:
        return len(self._facts)

    def __contains__(self, key: object) -> bool:
        return key in self._facts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Facts) and self._facts == other._facts and self.host == other.host

    __hash__ = None  # type: ignore[assignment]

    def fact(self, key: str) -> Fact:
        """The fact itself, gap or not. A package that the listing lacks is absent, not unknown."""
        found = self._facts.get(key)
        if found is not None:
            return found
        family = key.partition(".")[0]
        listing = self._facts.get(_LISTINGS.get(family, ""))
        if listing is None:
            return Fact(key, None, gap=self.otherwise)
        return Fact(key, None, listing.source, listing.how, listing.gap)

    def value(self, key: str) -> Any:
        """The value, or None where it is absent; raises Unknown where nobody could see."""
        fact = self.fact(key)
        if fact.gap:
            raise Unknown(fact)
        return fact.value

    def known(self, key: str) -> Any:
        """The value where it is known, else None: for evidence that only adds colour."""
        fact = self.fact(key)
        return None if fact.gap else fact.value

    def unwatched(self) -> Facts:
        """The same facts, where reading one leaves no trace."""
        same = Facts((), self.host, self.otherwise)
        same._facts = self._facts
        return same

    def also(self, *facts: Fact) -> Facts:
        """These facts with others added or replaced."""
        return Facts([*self._facts.values(), *facts], self.host, self.otherwise)

    def to_json(self) -> list[dict[str, Any]]:
        return [f.to_json() for f in self]


_LISTINGS = {"package": "python.packages", "env": "env.names"}
"""Families that are read whole: a key that is missing there is absent, and as unknown as the listing."""


class Need(Noun):
    """What one contract asks of one fact."""

    key: str
    want: str
    when: str = ""
    level: str = "required"  # required, recommended, optional
    cite: str = ""


class Capability(Noun):
    """Something the framework can do on the right ground; ``gate`` names the catalogue's feature."""

    name: str
    level: str = "optional"
    gate: str = ""
    when: str = ""
    cite: str = ""
    note: str = ""
    traits: tuple[str, ...] = ()  # falls-back, moe-by-block


class Variable(Noun):
    """An environment variable that the framework reads or sets."""

    name: str
    access: str  # read, set, or read and set
    value: str = ""
    when: str = ""
    allowed: tuple[str, ...] = ()
    required: bool = False
    cite: str = ""
    note: str = ""
    traits: tuple[str, ...] = ()  # forced, emptied-for-vllm


class KnownError(Noun):
    """An error that the framework raises, with its cause and its fix."""

    message: str
    cause: str
    fix: str
    code: str = ""
    cite: str = ""


class Step(Noun):
    """Something to do. ``run`` is an argument list, never a shell line; empty when only a person can."""

    does: str
    run: tuple[str, ...] = ()
    safety: str = "manual"  # safe, ask, manual
    undo: tuple[str, ...] = ()
    note: str = ""


class Contract(Noun):
    """What one version of one framework asks for, with citations."""

    framework: str
    version: str
    variant: str = ""
    distribution: str = ""
    title: str = ""
    origin: str = ""
    says: str = ""
    platforms: tuple[str, ...] = ("cuda",)
    needs: tuple[Need, ...] = ()
    capabilities: tuple[Capability, ...] = ()
    variables: tuple[Variable, ...] = ()
    errors: tuple[KnownError, ...] = ()
    steps: tuple[Step, ...] = ()
    notes: tuple[str, ...] = ()

    _nested = {
        "needs": Need,
        "capabilities": Capability,
        "variables": Variable,
        "errors": KnownError,
        "steps": Step,
    }

    @property
    def name(self) -> str:
        return f"{self.framework} {self.version}" + (f":{self.variant}" if self.variant else "")

    def wants(self, key: str) -> tuple[Need, ...]:
        """The needs on one fact, or on a family of facts (``package.*``)."""
        if key.endswith("*"):
            return tuple(n for n in self.needs if n.key.startswith(key[:-1]))
        return tuple(n for n in self.needs if n.key == key)


class Finding(Noun):
    """Something wrong, and the evidence for it."""

    code: str
    severity: str  # error, warning, info
    says: str
    found: tuple[Fact, ...] = ()
    needs: tuple[Need, ...] = ()
    so: str = ""
    fix: tuple[Step, ...] = ()

    _nested = {"found": Fact, "needs": Need, "fix": Step}


class Undecided(Noun):
    """A rule that could not see, and what it would have to see."""

    code: str
    severity: str
    says: str
    missing: tuple[Fact, ...] = ()

    _nested = {"missing": Fact}


class Judged(Noun):
    """A rule that looked and holds, and the keys of the facts that it looked at."""

    code: str
    read: tuple[str, ...] = ()


class Ignored(Noun):
    """A finding that the user has set aside, and why."""

    finding: Finding
    reason: str

    _nested = {"finding": Finding}


EXIT = {"ready": 0, "clear": 0, "not-ready": 1, "undecided": 3}


class Report(Noun):
    """The judgement of one contract on one set of facts."""

    contract: Contract
    facts: Facts
    findings: tuple[Finding, ...] = ()
    undecided: tuple[Undecided, ...] = ()
    unstated: tuple[Undecided, ...] = ()
    judged: tuple[Judged, ...] = ()
    ignored: tuple[Ignored, ...] = ()
    strict: bool = False
    catalog: str = ""

    @property
    def verdict(self) -> str:
        """The one fold: not-ready, undecided, ready or clear. Nothing else computes a verdict."""
        grave = {"error", "warning"} if self.strict else {"error"}
        if any(f.severity in grave for f in self.findings):
            return "not-ready"
        if any(self.strict or u.severity == "error" for u in self.undecided):
            return "undecided"
        required = [c.name for c in self.contract.capabilities if c.level == "required"]
        if required and all(_executed(self.facts.fact(f"can.{name}")) for name in required):
            return "ready"
        return "clear"

    @property
    def exit(self) -> int:
        return EXIT[self.verdict]


def _executed(fact: Fact) -> bool:
    return fact.how == "run" and fact.value is True and not fact.gap


def worst(verdicts: Iterable[str]) -> str:
    """The verdict of several frameworks, each judged alone."""
    order = ("not-ready", "undecided", "clear", "ready")
    return min(verdicts, key=order.index, default="undecided")


if TYPE_CHECKING:

    class Rule(Protocol):
        """One rule: a module under ``rules/FAMILY/``. Its docstring is its documentation."""

        CODE: str
        SEVERITY: str
        READS: tuple[str, ...]
        SIGNS: tuple[str | Mapping[str, Any], ...]  # see gpuready.logs
        BROKEN: Mapping[str, Any]
        HEALTHY: Mapping[str, Any]
        __doc__: str | None

        def judge(self, facts: Facts, contract: Contract) -> Finding | None: ...
