"""What changed between two Reports of one contract, worst first, with the rules whose outcome each change flips."""

from __future__ import annotations

from gpuready.model import Fact, Noun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gpuready.model import Report

GRAVITY = ("error", "undecided", "warning", "info", "holds", "")
"""Outcomes of a rule, worst first; the last one means it did not apply."""


class Flip(Noun):
    """A rule whose outcome differs between the two reports."""

    code: str
    was: str
    now: str

    @property
    def worse(self) -> bool:
        return GRAVITY.index(self.now) < GRAVITY.index(self.was) and self.now in GRAVITY[:3]


class Change(Noun):
    """A fact whose value differs, and the rules it flips."""

    key: str
    was: Fact
    now: Fact
    flips: tuple[Flip, ...] = ()

    _nested = {"was": Fact, "now": Fact, "flips": Flip}

    @property
    def worse(self) -> bool:
        return any(flip.worse for flip in self.flips)


def changes(
    before: Report, after: Report, volatile: Callable[[str], bool] = lambda key: False
) -> list[Change]:
    """Every fact that differs, those that make things worse first.

    A volatile fact (free memory, running processes) counts only where it flips a rule.
    """
    flips = _flips(before, after)
    found = []
    for key in _keys(before, after):
        was, now = before.facts.fact(key), after.facts.fact(key)
        if (was.value, bool(was.gap)) == (now.value, bool(now.gap)):
            continue
        mine = tuple(flip for flip, read in flips.items() if key in read)
        if mine or not volatile(key):
            found.append(Change(key, was, now, mine))
    return sorted(found, key=_rank)


def _rank(change: Change) -> tuple[int, int, str]:
    if not change.flips:
        return 2, 0, change.key
    return (0 if change.worse else 1), min(GRAVITY.index(f.now) for f in change.flips), change.key


def _keys(before: Report, after: Report) -> Iterable[str]:
    known = {fact.key: None for report in (before, after) for fact in report.facts}
    return (key for key in known if not key.startswith("job."))


def _flips(before: Report, after: Report) -> dict[Flip, set[str]]:
    """Each rule whose outcome differs, with the facts it read on either side."""
    was, now = _outcomes(before), _outcomes(after)
    flips: dict[Flip, set[str]] = {}
    for code in {**was, **now}:
        old, read_then = was.get(code, ("", set()))
        new, read_now = now.get(code, ("", set()))
        if old != new:
            flips[Flip(code, old, new)] = read_then | read_now
    return flips


def _outcomes(report: Report) -> dict[str, tuple[str, set[str]]]:
    found: dict[str, tuple[str, set[str]]] = {j.code: ("holds", set(j.read)) for j in report.judged}
    found |= {u.code: ("undecided", {f.key for f in u.missing}) for u in report.undecided}
    for finding in report.findings:
        evidence = {fact.key for fact in finding.found} | {need.key for need in finding.needs}
        found[finding.code] = (finding.severity, evidence)
    return found
