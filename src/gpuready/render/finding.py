"""Findings on the screen, and rules without a verdict: undecided, not stated, ignored."""

from collections.abc import Iterable

from gpuready.model import NOT_STATED, Fact, Finding, FixStep, IgnoredFinding, Report, Requirement, UndecidedRule
from gpuready.model.contract import describe_want
from gpuready.model.facts import UNSTATED_TEXT
from gpuready.render import units
from gpuready.render.layout import Screen

_TEXT_COLUMN = 9
"""The column where a finding's text begins: after ``  found  ``."""

_SAFETY_WORDS = {"safe": "safe", "ask": "asks first"}
_SENTENCE_OPENERS = (
    "The",
    "A",
    "An",
    "No",
    "This",
    "These",
    "Two",
    "One",
    "Nothing",
    "Some",
    "More",
    "It",
    "There",
    "Importing",
    "Installed",
)


def format_finding(finding: Finding, screen: Screen) -> list[str]:
    """One finding: headline, found, needs, so, fix. An info finding is only its headline."""
    lead = f"{finding.severity}[{finding.code}]:"
    role = finding.severity if finding.severity in ("error", "warning") else "info"
    lines = screen.lead_paragraph(lead, finding.says, role)
    if finding.severity == "info":
        return lines
    lines += _format_finding_evidence(finding, screen)
    if finding.so:
        lines += format_labelled_text("so", finding.so, screen)
    return lines + format_fix_steps(finding.fix, screen)


def _format_finding_evidence(finding: Finding, screen: Screen) -> list[str]:
    """Found and needed values in the same columns: key, value, source."""
    rows = list_evidence(finding.found, finding.needs)
    table = screen.format_table([row[1:] for row in rows], _TEXT_COLUMN, (4, 3))
    lines, last = [], ""
    for (label, *_), cells in zip(rows, table, strict=True):
        lines += screen.label_lines("" if label == last else label, cells)
        last = label
    return lines


def list_evidence(found: Iterable[Fact], needs: Iterable[Requirement]) -> list[tuple[str, str, str, str]]:
    """Rows of ``found`` or ``needs``, key, value and source."""
    rows = [("found", fact.key, units.format_fact_value(fact), fact_source(fact)) for fact in found]
    for need in needs:
        source = "; ".join(part for part in (need.cite, need.when and format_condition(need.when)) if part)
        rows.append(("needs", need.key, describe_want(need.want), source))
    return rows


def fact_source(fact: Fact) -> str:
    """Where a fact comes from, or why it is unknown."""
    return fact.gap if fact.gap and fact.gap != NOT_STATED else fact.source


def format_condition(when: str) -> str:
    """``wants=fp8|fp4,gpus>1`` -> ``when wants=fp8 or fp4, gpus>1``"""
    return "when " + when.replace("|", " or ").replace(",", ", ")


def format_labelled_text(label: str, text: str, screen: Screen) -> list[str]:
    return screen.label_lines(label, screen.wrap_text(text, screen.width - _TEXT_COLUMN))


def format_fix_steps(steps: Iterable[FixStep], screen: Screen, always_safety: bool = True) -> list[str]:
    """Each step with its safety and its command. Without ``always_safety`` a step that is only words has none."""
    lines: list[str] = []
    for i, step in enumerate(steps):
        safety = describe_safety(step) if always_safety or step.run or step.note else ""
        step_lines = screen.align_ends(step.does, safety, _TEXT_COLUMN)
        step_lines += format_step_command(step.run, screen) if step.run else []
        lines += screen.label_lines("or" if i else "fix", step_lines)
    return lines


def describe_safety(step: FixStep) -> str:
    """``safe``, ``asks first``, or ``by hand`` with its note."""
    return _SAFETY_WORDS.get(step.safety) or step.note or "by hand"


def format_step_command(words: tuple[str, ...], screen: Screen) -> list[str]:
    return [line[_TEXT_COLUMN:] for line in screen.format_command(words, _TEXT_COLUMN + 2)]


# -- rules without a verdict ---------------------------------------------------------------------------


def group_undecided(report: Report) -> list[list[UndecidedRule]]:
    """The undecided rules, grouped by the reason."""
    groups: dict[str, list[UndecidedRule]] = {}
    for item in report.undecided:
        groups.setdefault("; ".join(fact.gap for fact in item.missing), []).append(item)
    return list(groups.values())


def lowercase_opener(title: str) -> str:
    """Lower-case an opening word inside a sentence: ``The driver is`` -> ``the driver is``; names keep their capitals."""
    first, space, rest = title.partition(" ")
    return f"{first.lower()}{space}{rest}" if first in _SENTENCE_OPENERS else title


def format_unstated(report: Report, screen: Screen) -> list[str]:
    """The facts a what-if was not given, each with the rules that need it."""
    rows = [(key, ", ".join(codes)) for key, codes in codes_by_missing_fact(report.unstated).items()]
    return [f"{UNSTATED_TEXT}, and which checks need it", *screen.indent_table(rows)]


def codes_by_missing_fact(rules: Iterable[UndecidedRule]) -> dict[str, list[str]]:
    codes: dict[str, list[str]] = {}
    for rule in rules:
        for fact in rule.missing:
            codes.setdefault(fact.key, []).append(rule.code)
    return codes


def format_ignored(item: IgnoredFinding, screen: Screen) -> list[str]:
    finding = item.finding
    says = f"{finding.says}; reason: {item.reason}"
    return screen.lead_paragraph(f"ignored {finding.severity}[{finding.code}]:", says, "dim")
