"""What changed between two Reports of one contract, worst first, with the rules whose outcome each change flips."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from gpuready.model import Fact, Record, Report

OUTCOME_ORDER = ("error", "undecided", "warning", "info", "holds", "")
"""Outcomes of a rule, worst first; the last one means it did not apply."""
FINDINGS = ("error", "warning", "info")


class RuleFlip(Record):
    """A rule whose outcome differs between the two reports."""

    code: str
    was: str
    now: str

    @property
    def is_worse(self) -> bool:
        """Whether the outcome is worse. A rule that applies only now, as those for several GPUs do, is so with an error."""
        if not self.was:
            return self.now == "error"
        return OUTCOME_ORDER.index(self.now) < OUTCOME_ORDER.index(self.was) and self.now in OUTCOME_ORDER[:3]


class FactChange(Record):
    """A fact whose value differs, and the rules it flips."""

    key: str
    was: Fact
    now: Fact
    flips: tuple[RuleFlip, ...] = ()

    @property
    def is_worse(self) -> bool:
        return any(flip.is_worse for flip in self.flips)


def compare_reports(
    before: Report, after: Report, volatile: Callable[[str], bool] = lambda key: False
) -> list[FactChange]:
    """Every fact that differs, those that make things worse first.

    A volatile fact (free memory, running processes) and a list in another order count only where they flip a rule.
    """
    pairs = {key: (before.facts.fact(key), after.facts.fact(key)) for key in _compared_keys(before, after)}
    changed = {key for key, (was, now) in pairs.items() if (was.value, bool(was.gap)) != (now.value, bool(now.gap))}
    flips = _find_rule_flips(before, after, changed)
    result = []
    for key, (was, now) in pairs.items():
        if key not in changed:
            continue
        caused = tuple(flip for flip, read in flips.items() if key in read)
        if caused or not (volatile(key) or _is_reordered(was.value, now.value)):
            result.append(FactChange(key, was, now, caused))
    return sorted(result, key=_change_order)


def _is_reordered(was: object, now: object) -> bool:
    """Whether two lists have the same values in another order, or one and the same value for another number of GPUs."""
    if not (isinstance(was, (list, tuple)) and isinstance(now, (list, tuple))):
        return False
    kinds = {*map(str, was), *map(str, now)}
    return sorted(map(str, was)) == sorted(map(str, now)) or bool(len(kinds) == 1 and was and now)


def _change_order(change: FactChange) -> tuple[int, int, str]:
    if not change.flips:
        return 2, 0, change.key
    return (0 if change.is_worse else 1), min(OUTCOME_ORDER.index(f.now) for f in change.flips), change.key


def _compared_keys(before: Report, after: Report) -> Iterable[str]:
    known = {fact.key: None for report in (before, after) for fact in report.facts}
    return (key for key in known if not key.startswith(("job.", "settings.")))


def _find_rule_flips(before: Report, after: Report, changed: set[str]) -> dict[RuleFlip, set[str]]:
    """Each rule whose outcome differs, with the facts behind that: its evidence, where that has changed, else all it read."""
    was, now = _outcomes_by_rule(before), _outcomes_by_rule(after)
    flips: dict[RuleFlip, set[str]] = {}
    for code in {**was, **now}:
        old, read_then = was.get(code, ("", set()))
        new, read_now = now.get(code, ("", set()))
        if old != new:
            findings = [keys for outcome, keys in ((old, read_then), (new, read_now)) if outcome in FINDINGS]
            evidence: set[str] = set().union(*findings)
            flips[RuleFlip(code, old, new)] = evidence if evidence & changed else read_then | read_now
    return flips


def _outcomes_by_rule(report: Report) -> dict[str, tuple[str, set[str]]]:
    outcomes: dict[str, tuple[str, set[str]]] = {j.code: ("holds", set(j.read)) for j in report.judged}
    outcomes |= {u.code: ("undecided", {f.key for f in u.missing}) for u in report.undecided}
    for finding in report.findings:
        evidence = {fact.key for fact in finding.found} | {need.key for need in finding.needs}
        outcomes[finding.code] = (finding.severity, evidence)
    return outcomes
