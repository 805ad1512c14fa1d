"""Judge the rules over the facts, three-valued. Pure: no access to the host.

A rule reads facts through TrackedFacts, which notes the keys. An unknown fact, or a value the rule cannot use (a
version without a number), makes the rule undecided. A rule that read nothing did not apply. A rule that read
something and found nothing passes, and the keys it read are its evidence.
"""

from __future__ import annotations

from gpuready.model import NOT_STATED, Facts, Ignored, Judged, Report, Undecided, Unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any

    from gpuready.model import Contract, Fact, Finding, Rule

    Options = Callable[[str], Iterable[Facts]]

ODD = (ValueError, TypeError, LookupError, AttributeError)
"""What a rule raises over a value it did not expect; the other rules are unaffected."""

EXECUTED = ("can.", "log.", "fit.", "fleet.", "bench.")
"""Facts that only their own command collects; a rule that reads one applies only when some are present."""


class View(Facts):
    """Facts that note which keys were read."""

    __slots__ = ("read",)

    def __init__(self, facts: Facts):
        self._facts, self.host, self.otherwise = facts._facts, facts.host, facts.otherwise
        self.read: dict[str, None] = {}

    def fact(self, key: str) -> Fact:
        self.read[key] = None
        return super().fact(key)


def judge(
    rules: Iterable[Rule],
    facts: Facts,
    contract: Contract,
    *,
    ignore: Mapping[str, str] | None = None,
    strict: bool = False,
    catalog: str = "",
    options: Options | None = None,
) -> Report:
    """Judge every rule on these facts under this contract; return one Report."""
    findings: list[Finding] = []
    undecided: list[Undecided] = []
    unstated: list[Undecided] = []
    judged: list[Judged] = []
    ignored: list[Ignored] = []
    reasons = ignore or {}
    for rule in rules:
        if not _applies(rule, facts):
            continue
        outcome = _one(rule, facts, contract, options)
        if isinstance(outcome, Undecided):
            _stated = all(f.gap == NOT_STATED for f in outcome.missing)
            (unstated if _stated else undecided).append(outcome)
        elif isinstance(outcome, Judged):
            judged.append(outcome)
        elif outcome is not None and outcome.code in reasons:
            ignored.append(Ignored(outcome, reasons[outcome.code]))
        elif outcome is not None:
            findings.append(outcome)
    return Report(
        contract=contract,
        facts=facts,
        findings=tuple(sorted(findings, key=_gravity)),
        undecided=tuple(u for u in undecided if u.code not in reasons),
        unstated=tuple(unstated),
        judged=tuple(judged),
        ignored=tuple(ignored),
        strict=strict,
        catalog=catalog,
    )


def _applies(rule: Rule, facts: Facts) -> bool:
    looked_for = tuple({key.partition(".")[0] + "." for key in rule.READS if key.startswith(EXECUTED)})
    return not looked_for or any(f.key.startswith(looked_for) for f in facts)


def _one(rule: Rule, facts: Facts, contract: Contract, options: Options | None) -> Any:
    view = View(facts)
    try:
        finding = rule.judge(view, contract)
    except Unknown as unknown:
        if unknown.fact.gap == NOT_STATED and options is not None:
            return _over_options(rule, unknown.fact, contract, options)
        return _cannot_see(rule, unknown.fact)
    except ODD as error:
        if not view.read:
            raise
        return _cannot_see(rule, _odd(view, error))
    if finding is not None:
        return finding
    return Judged(rule.CODE, tuple(view.read)) if view.read else None


def _over_options(rule: Rule, missing: Fact, contract: Contract, options: Options) -> Any:
    """For a what-if that leaves a value open: a finding only if every possible value gives one."""
    wrong: list[Finding] = []
    for candidate in options(missing.key):
        outcome = _one(rule, candidate, contract, None)
        if outcome is None or isinstance(outcome, (Judged, Undecided)):
            return _cannot_see(rule, missing)
        wrong.append(outcome)
    return wrong[0] if wrong else _cannot_see(rule, missing)


def _cannot_see(rule: Rule, missing: Fact) -> Undecided:
    return Undecided(rule.CODE, rule.SEVERITY, title(rule), (missing,))


def _odd(view: View, error: Exception) -> Fact:
    """The fact a rule could not use: the one the error quotes, else the last one read."""
    said = " ".join(str(error).split())
    read = [Facts.fact(view, key) for key in view.read]
    fact = next(
        (f for f in reversed(read) if isinstance(f.value, str) and f.value and f.value in said), read[-1]
    )
    return fact.but(value=None, gap=f"its value cannot be judged: {said[:160] or type(error).__name__}")


def title(rule: Rule) -> str:
    """First line of a rule's docstring."""
    return (rule.__doc__ or rule.CODE).strip().partition("\n")[0].rstrip(".")


def _gravity(finding: Finding) -> tuple[int, str]:
    return ("error", "warning", "info").index(finding.severity), finding.code
