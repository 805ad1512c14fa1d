"""Records shared by all packages: facts, contracts, findings, fixes, reports. Field names are the JSON keys."""

from __future__ import annotations

from gpuready.noun import Noun as Noun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from typing import Any, Protocol

    from typing_extensions import Self


SCHEMA = 1
"""Version of every JSON document gpuready writes; raised when a field changes its meaning."""

NOT_STATED = "not stated"
"""Gap of a fact that a what-if leaves open: neither absent nor unknown."""


class Fact(Noun):
    """One fact about the host, with its evidence.

    ``gap`` set: unknown, and why. ``value`` None without gap: confirmed absent.
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
    """A rule asked for a fact that is unknown; the rule becomes undecided."""

    def __init__(self, fact: Fact):
        super().__init__(f"{fact.key}: {fact.gap}")
        self.fact = fact


class Facts:
    """An immutable mapping of key to Fact, for one host."""

    __slots__ = ("_facts", "host", "otherwise")

    def __init__(self, facts: Iterable[Fact], host: str = "", otherwise: str = "nothing looked for it"):
        self._facts: dict[str, Fact] = {f.key: f for f in facts}
        self.host = host
        self.otherwise = otherwise  # gap of every fact that is not listed

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
        """The fact itself, gap or not. A package missing from the listing is absent, not unknown."""
        found = self._facts.get(key)
        if found is not None:
            return found
        family = key.partition(".")[0]
        listing = self._facts.get(_LISTINGS.get(family, ""))
        if listing is None:
            return Fact(key, None, gap=self.otherwise)
        return Fact(key, None, listing.source, listing.how, listing.gap)

    def value(self, key: str) -> Any:
        """The value, or None where it is absent; raises UnknownFactError where it is unknown."""
        fact = self.fact(key)
        if fact.gap:
            raise Unknown(fact)
        return fact.value

    def known(self, key: str) -> Any:
        """The value where it is known, else None: for evidence that is only additional."""
        fact = self.fact(key)
        return None if fact.gap else fact.value

    def unwatched(self) -> Facts:
        """The same facts without tracking of the keys that are read."""
        same = Facts((), self.host, self.otherwise)
        same._facts = self._facts
        return same

    def also(self, *facts: Fact) -> Facts:
        """Return these facts with others added or replaced."""
        return Facts([*self._facts.values(), *facts], self.host, self.otherwise)

    def to_json(self) -> list[dict[str, Any]]:
        return [f.to_json() for f in self]


_LISTINGS = {"package": "python.packages", "env": "env.names"}
"""Families that are listed completely: a missing key is absent, or as unknown as the listing."""


class Need(Noun):
    """What a contract requires of one fact."""

    key: str
    want: str
    when: str = ""
    level: str = "required"  # required, recommended, optional
    cite: str = ""


class Capability(Noun):
    """A feature the framework has on suitable hardware; ``gate`` names the catalogue's feature."""

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
    """An error the framework raises, with cause and fix."""

    message: str
    cause: str
    fix: str
    code: str = ""
    cite: str = ""


class Step(Noun):
    """Something to do. ``run`` is an argument list, never a shell line; empty when only a person can do it."""

    does: str
    run: tuple[str, ...] = ()
    safety: str = "manual"  # safe, ask, manual
    undo: tuple[str, ...] = ()
    note: str = ""


class Contract(Noun):
    """What one version of one framework requires, with citations."""

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
        """Requirements on one fact, or on a family of facts (``package.*``)."""
        if key.endswith("*"):
            return tuple(n for n in self.needs if n.key.startswith(key[:-1]))
        return tuple(n for n in self.needs if n.key == key)


class Finding(Noun):
    """Something wrong, with its evidence."""

    code: str
    severity: str  # error, warning, info
    says: str
    found: tuple[Fact, ...] = ()
    needs: tuple[Need, ...] = ()
    so: str = ""
    fix: tuple[Step, ...] = ()

    _nested = {"found": Fact, "needs": Need, "fix": Step}


class Undecided(Noun):
    """A rule that could not decide, and the facts it lacks."""

    code: str
    severity: str
    says: str
    missing: tuple[Fact, ...] = ()

    _nested = {"missing": Fact}


class Judged(Noun):
    """A rule that passed, and the keys it read."""

    code: str
    read: tuple[str, ...] = ()


class Ignored(Noun):
    """A finding the user has set aside, and why."""

    finding: Finding
    reason: str

    _nested = {"finding": Finding}


EXIT = {"ready": 0, "clear": 0, "not-ready": 1, "undecided": 3}


class Report(Noun):
    """The result of one contract on one set of facts."""

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
        """not-ready, undecided, ready or clear. The only place where a verdict is computed."""
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
    """Combine the verdicts of several frameworks, each judged alone."""
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
