"""Judge the rules over the facts, three-valued. Pure: no access to the host.

A rule reads facts through TrackedFacts, which notes the keys. An unknown fact, or a value the rule cannot use (a
version without a number), makes the rule undecided. A rule that read nothing did not apply. A rule that read
something and found nothing passes, and the keys it read are its evidence.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from gpuready.model import (
    NOT_STATED,
    Contract,
    Fact,
    Facts,
    Finding,
    IgnoredFinding,
    PassedRule,
    Report,
    Rule,
    UndecidedRule,
    UnknownFactError,
)
from gpuready.model.contract import BORROWED_NEED

Options = Callable[[str], Iterable[Facts]]


RULE_ERRORS = (ValueError, TypeError, LookupError, AttributeError)
"""What a rule raises over a value it did not expect; the other rules are unaffected."""

COMMAND_FACT_PREFIXES = ("can.", "log.", "fit.", "fleet.", "bench.")
"""Facts that only their own command collects; a rule that reads one applies only when some are present."""


class TrackedFacts(Facts):
    """Facts that note which keys were read."""

    __slots__ = ("keys_read",)

    def __init__(self, facts: Facts):
        self._facts, self._absent, self.host, self.otherwise = facts._facts, facts._absent, facts.host, facts.otherwise
        self.keys_read: dict[str, None] = {}

    def fact(self, key: str) -> Fact:
        self.keys_read[key] = None
        return self._facts.get(key) or super().fact(key)


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
    undecided: list[UndecidedRule] = []
    unstated: list[UndecidedRule] = []
    judged: list[PassedRule] = []
    ignored: list[IgnoredFinding] = []
    reasons = ignore or {}
    families = {f.key.partition(".")[0] for f in facts}
    for rule in rules:
        if not _rule_applies(rule, families):
            continue
        outcome = _judge_rule(rule, facts, contract, options)
        if isinstance(outcome, UndecidedRule):
            only_unstated = all(f.gap == NOT_STATED for f in outcome.missing)
            (unstated if only_unstated else undecided).append(outcome)
        elif isinstance(outcome, PassedRule):
            judged.append(outcome)
        elif outcome is not None and outcome.code in reasons:
            ignored.append(IgnoredFinding(outcome, reasons[outcome.code]))
        elif outcome is not None:
            findings.append(outcome)
            undecided += _doubt_borrowed_needs(outcome, contract)
    return Report(
        contract=contract,
        facts=facts,
        findings=tuple(sorted(findings, key=_severity_order)),
        undecided=tuple(u for u in undecided if u.code not in reasons),
        unstated=tuple(unstated),
        judged=tuple(judged),
        ignored=tuple(ignored),
        strict=strict,
        catalog=catalog,
    )


def _rule_applies(rule: Rule, families: set[str]) -> bool:
    looked_for = _command_families(tuple(rule.READS))
    return not looked_for or not families.isdisjoint(looked_for)


@cache
def _command_families(keys: tuple[str, ...]) -> frozenset[str]:
    """Return the families, among these keys, of facts that only a command collects."""
    return frozenset(key.partition(".")[0] for key in keys if key.startswith(COMMAND_FACT_PREFIXES))


def apply_rule(rule: Rule, facts: Facts, contract: Contract) -> Finding | None:
    """Return what a rule finds, under its code, and with its severity where it states none."""
    finding = rule.judge(facts, contract)
    return finding and finding.replace(code=rule.CODE, severity=finding.severity or rule.SEVERITY)


def _judge_rule(rule: Rule, facts: Facts, contract: Contract, options: Options | None) -> Any:
    view = TrackedFacts(facts)
    try:
        finding = apply_rule(rule, view, contract)
    except UnknownFactError as unknown:
        if unknown.fact.gap == NOT_STATED and options is not None:
            return _judge_over_options(rule, unknown.fact, contract, options)
        return _make_undecided(rule, unknown.fact)
    except RULE_ERRORS as error:
        if not view.keys_read:
            raise
        return _make_undecided(rule, _unusable_fact(view, error))
    if finding is not None:
        return finding
    return PassedRule(rule.CODE, tuple(view.keys_read)) if view.keys_read else None


def _judge_over_options(rule: Rule, missing: Fact, contract: Contract, options: Options) -> Any:
    """For a what-if that leaves a value open: a finding only if every possible value gives one."""
    wrong: list[Finding] = []
    for candidate in options(missing.key):
        outcome = _judge_rule(rule, candidate, contract, None)
        if outcome is None or isinstance(outcome, (PassedRule, UndecidedRule)):
            return _make_undecided(rule, missing)
        wrong.append(outcome)
    return wrong[0] if wrong else _make_undecided(rule, missing)


def _make_undecided(rule: Rule, missing: Fact) -> UndecidedRule:
    return UndecidedRule(rule.CODE, rule.SEVERITY, rule_title(rule), (missing,))


def _doubt_borrowed_needs(finding: Finding, contract: Contract) -> list[UndecidedRule]:
    """Return what is not known after a warning whose need is another version's: this one may fail, or work."""
    if finding.severity != "warning" or not any(BORROWED_NEED in need.cite for need in finding.needs):
        return []
    name = contract.distribution or contract.framework
    missing = Fact(f"package.{name}", None, contract.origin, "stated", contract.says.partition(";")[0])
    return [UndecidedRule(finding.code, "error", f"{contract.name} asks for that too", (missing,))]


def _unusable_fact(view: TrackedFacts, error: Exception) -> Fact:
    """The fact a rule could not use: the one the error quotes, else the last one read."""
    message = " ".join(str(error).split())
    read = [Facts.fact(view, key) for key in view.keys_read]
    fact = next((f for f in reversed(read) if isinstance(f.value, str) and f.value and f.value in message), read[-1])
    return fact.replace(value=None, gap=f"its value cannot be judged: {message[:160] or type(error).__name__}")


def rule_title(rule: Rule) -> str:
    """First line of a rule's docstring."""
    return (rule.__doc__ or rule.CODE).strip().partition("\n")[0].rstrip(".")


def _severity_order(finding: Finding) -> tuple[int, str]:
    return ("error", "warning", "info").index(finding.severity), finding.code
