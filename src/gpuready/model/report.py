"""Reports: the findings of one contract on one set of facts, and the verdict."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

from gpuready.model.contract import Contract, FixStep, Requirement
from gpuready.model.facts import NOT_STATED, UNSTATED_TEXT, Fact, Facts, verdict_words
from gpuready.model.record import Record


class Finding(Record):
    """Something wrong, with its evidence."""

    code: str
    severity: str  # error, warning, info
    says: str
    found: tuple[Fact, ...] = ()
    needs: tuple[Requirement, ...] = ()
    so: str = ""
    fix: tuple[FixStep, ...] = ()


def make_finding(
    says: str,
    *,
    found: tuple[Fact, ...] = (),
    needs: tuple[Requirement, ...] = (),
    so: str = "",
    fix: tuple[FixStep, ...] = (),
    severity: str = "",
) -> Finding:
    """Return what a rule found; ``check`` adds the code of the rule, and its severity where none is stated."""
    return Finding("", severity, says, found, needs, so, fix)


class UndecidedRule(Record):
    """A rule that could not decide, and the facts it lacks."""

    code: str
    severity: str
    says: str
    missing: tuple[Fact, ...] = ()


class PassedRule(Record):
    """A rule that passed, and the keys it read."""

    code: str
    read: tuple[str, ...] = ()


class IgnoredFinding(Record):
    """A finding the user has set aside, and why."""

    finding: Finding
    reason: str


_DECIDING_FACTS = {
    "GPU": ("gpu.count",),
    "driver": ("driver.version",),
    "torch": ("package.torch", "torch.version", "torch.build", "torch.cuda"),
    "its CUDA libraries (cuBLAS)": ("toolkit.version",),
    "cuDNN": ("cudnn.version",),
}
"""What decides whether a framework runs at all: of a machine that is only described, an answer names what was not given."""
_DECIDING_NAMES = {
    "cuda": ("GPU", "driver", "torch"),
    "rocm": ("torch",),
    "own": ("GPU", "driver", "its CUDA libraries (cuBLAS)", "cuDNN"),
}
"""Of each platform, and of a package that loads CUDA itself: elsewhere there is no driver to state, and one build of each torch."""

EXIT_CODES = {"ready": 0, "clear": 0, "not-ready": 1, "undecided": 3}


class Report(Record):
    """The result of one contract on one set of facts."""

    contract: Contract
    facts: Facts
    findings: tuple[Finding, ...] = ()
    undecided: tuple[UndecidedRule, ...] = ()
    unstated: tuple[UndecidedRule, ...] = ()
    judged: tuple[PassedRule, ...] = ()
    ignored: tuple[IgnoredFinding, ...] = ()
    strict: bool = False
    catalog: str = ""  # the day of the knowledge it was judged by
    catalog_days: int | None = None  # its age when it was judged
    asked: tuple[str, ...] = ()  # the options that say what was judged: --on m.json --python .venv

    @property
    def verdict(self) -> str:
        """not-ready, undecided, ready or clear. The only place where a verdict is computed."""
        grave = {"error", "warning"} if self.strict else {"error"}
        if any(f.severity in grave for f in self.findings):
            return "not-ready"
        if any(self.strict or u.severity == "error" for u in self.undecided):
            return "undecided"
        if self.lacking:
            return "undecided"
        required = [c.name for c in self.contract.capabilities if c.level == "required"]
        facts = [self.facts.fact(f"can.{name}") for name in required]
        if facts and all(fact.how == "run" and fact.value is True and not fact.gap for fact in facts):
            return "ready"
        return "clear"

    @property
    def answer(self) -> str:
        """The verdict in the words of the screens: ``no problems found``."""
        return verdict_words(self.verdict)

    @property
    def lacking(self) -> tuple[str, ...]:
        """What was not given of a machine that is only described, and could refute that it is ready."""
        needed = {fact.key for one in self.unstated if one.severity == "error" for fact in one.missing}
        wants = self.facts.value_if_known("job.wants")
        is_for_cpu = isinstance(wants, (tuple, list)) and "cpu" in wants  # a recording may have anything there
        platform = (self.facts.value_if_known("platform.name") or "cuda") if self.contract.platforms else "own"
        names = () if is_for_cpu else _DECIDING_NAMES.get(platform, ())
        return tuple(name for name in names if needed.intersection(_DECIDING_FACTS[name]) and self._is_open(name))

    @property
    def open_words(self) -> str:
        """Why it is undecided: ``driver not given``, ``2 checks could not be made``."""
        count = len(self.undecided)
        checks = f"{count} {'check' if count == 1 else 'checks'} could not be made"
        return f"{' and '.join(self.lacking)} {UNSTATED_TEXT}" if self.lacking else checks

    def _is_open(self, name: str) -> bool:
        is_pinned = name == "torch" and self.contract.pinned_torch
        return not is_pinned and all(self.facts.fact(key).gap == NOT_STATED for key in _DECIDING_FACTS[name])

    @property
    def judged_by(self) -> str:
        """The release whose requirements were applied: not always the one that is judged."""
        return f"{self.contract.framework} {self.contract.read_from or self.contract.version}"

    @property
    def exit(self) -> int:
        return EXIT_CODES[self.verdict]

    @property
    def is_system_python(self) -> bool:
        """Whether packages are wrong in a Python that is no environment: they are installed into one."""
        kind, managed = (self.facts.value_if_known(key) for key in ("python.kind", "python.managed"))
        return bool(managed) or (kind == "system" and any(one.code.startswith("PKG") for one in self.findings))

    @property
    def lacks_gpus(self) -> bool:
        """Whether the framework runs on accelerators alone and none is here: nothing can be installed for it."""
        platforms = self.contract.platforms
        return bool(platforms) and "cpu" not in platforms and self.facts.value_if_known("platform.name") == "cpu"


def worst_verdict(verdicts: Iterable[str]) -> str:
    """Combine the verdicts of several frameworks, each judged alone."""
    order = ("not-ready", "undecided", "clear", "ready")
    return min(verdicts, key=order.index, default="undecided")


class Rule(Protocol):
    """One rule: a module under ``rules/FAMILY/``, or a LogRule. Its docstring is its documentation."""

    CODE: str
    SEVERITY: str
    READS: tuple[str, ...]
    BROKEN: Mapping[str, Any]
    HEALTHY: Mapping[str, Any]
    __doc__: str | None

    def judge(self, facts: Facts, contract: Contract) -> Finding | None: ...


TRUSTED_DAYS = 180
"""Age in days from which an answer mentions it."""


def days_since(day: str, now: float) -> int:
    """Return how many days ago a day (``2026-11-15``) was; 0 where the clock is wrong."""
    year, month, number = map(int, day.split("-"))
    return max(0, int((now - time.mktime((year, month, number, 0, 0, 0, 0, 0, -1))) // 86400))


def old_knowledge_note(days: int) -> str:
    """Return what to do about old knowledge; empty where it is not old."""
    if days <= TRUSTED_DAYS:
        return ""
    return f"gpuready's knowledge is {days} days old: newer releases are not in it; upgrade gpuready"
