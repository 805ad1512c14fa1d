"""Findings on the screen, and rules without a verdict: undecided, not stated, ignored."""

from __future__ import annotations

from gpuready.model import NOT_STATED
from gpuready.render import units
from gpuready.render.escape import escape_unprintable, quote_command_words
from gpuready.render.layout import display_width

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuready.model import Fact, Finding, FixStep, IgnoredFinding, Report, Requirement, UndecidedRule
    from gpuready.render.layout import Screen

_TEXT_COLUMN = 9
"""The column where a finding's text begins: after ``  found  ``."""

_SAFETY_WORDS = {"safe": "safe", "ask": "asks first"}
_SENTENCE_OPENERS = ("The", "A", "An", "No", "This", "These", "Two", "One", "Nothing", "Some", "More", "It", "There")


def format_finding(finding: Finding, screen: Screen) -> list[str]:
    """One finding: headline, found, needs, so, fix. An info finding is only its headline."""
    lead = f"{escape_unprintable(finding.severity)}[{escape_unprintable(finding.code)}]:"
    role = finding.severity if finding.severity in ("error", "warning") else "info"
    lines = screen.lead_paragraph(lead, escape_unprintable(finding.says), role)
    if finding.severity == "info":
        return lines
    return [
        *lines,
        *_format_finding_evidence(finding, screen),
        *_format_finding_effect(finding, screen),
        *_format_finding_fixes(finding, screen),
    ]


def _format_finding_evidence(finding: Finding, screen: Screen) -> list[str]:
    """Found and needed values in the same columns: key, value, source."""
    rows = [(*_found_fact_row(fact), "found") for fact in finding.found]
    rows += [(*_needed_row(need), "needs") for need in finding.needs]
    table = screen.format_table([row[:3] for row in rows], _TEXT_COLUMN, (4, 3))
    lines, last = [], ""
    for row, cells in zip(rows, table, strict=True):
        lines += _label_lines("" if row[3] == last else row[3], cells, screen)
        last = row[3]
    return lines


def _found_fact_row(fact: Fact) -> tuple[str, str, str]:
    source = fact.gap if fact.gap and fact.gap != NOT_STATED else fact.source
    return (escape_unprintable(fact.key), escape_unprintable(units.format_fact_value(fact)), escape_unprintable(source))


def _needed_row(need: Requirement) -> tuple[str, str, str]:
    where = escape_unprintable(need.cite)
    if need.when:
        where = f"{where}; {format_condition(need.when)}" if where else format_condition(need.when)
    return escape_unprintable(need.key), format_need_value(need.want), where


def format_need_value(text: str) -> str:
    """``>=2.2,<=2.5.1`` -> ``>= 2.2, <= 2.5.1``; ``==2.6|==2.8`` -> ``2.6 or 2.8``; ``*`` -> ``present``."""
    if text.strip() == "*":
        return "present"
    choices = [[escape_unprintable(c.strip()) for c in choice.split(",")] for choice in text.split("|")]
    single_clauses = len(choices) > 1 and all(len(clauses) == 1 for clauses in choices)
    return " or ".join(", ".join(_format_need_clause(c, single_clauses) for c in clauses) for clauses in choices)


def format_condition(when: str) -> str:
    """``wants=fp8|fp4,gpus>1`` -> ``when wants=fp8 or fp4, gpus>1``"""
    return "when " + escape_unprintable(when).replace("|", " or ").replace(",", ", ")


def _format_need_clause(clause: str, single_clause: bool) -> str:
    bound = clause.lstrip("<>=!~")
    operator = clause[: len(clause) - len(bound)]
    number = bound.strip().rstrip("KMGTiB")
    if number and number != bound.strip() and number[-1].isdigit():
        bound = f"{number} {bound.strip()[len(number) :]}"
    if not operator or (single_clause and operator == "=="):
        return bound.strip()
    return f"{operator} {bound.strip()}"


def _format_finding_effect(finding: Finding, screen: Screen) -> list[str]:
    if not finding.so:
        return []
    return _label_lines("so", screen.wrap_text(escape_unprintable(finding.so), screen.width - _TEXT_COLUMN), screen)


def _format_finding_fixes(finding: Finding, screen: Screen) -> list[str]:
    lines = []
    for i, step in enumerate(finding.fix):
        lines += _label_lines("or" if i else "fix", _format_fix_step(step, screen), screen)
    return lines


def _format_fix_step(step: FixStep, screen: Screen) -> list[str]:
    lines = screen.align_ends(escape_unprintable(step.does), describe_safety(step), _TEXT_COLUMN)
    if step.run:
        lines += wrap_command(step.run, screen, _TEXT_COLUMN)
    return lines


def describe_safety(step: FixStep) -> str:
    """``safe``, ``asks first``, or ``by hand`` with its note."""
    return _SAFETY_WORDS.get(step.safety) or escape_unprintable(step.note) or "by hand"


def wrap_command(words: tuple[str, ...], screen: Screen, indent: int) -> list[str]:
    """Break a command only between words, with ``\\`` at the end of the line, so that it can be pasted."""
    width = screen.width - indent - 6
    lines, line = [], ""
    for word in (screen.truncate_text(w, width) for w in quote_command_words(words)):
        if line and display_width(line) + 1 + display_width(word) > width:
            lines.append(line + " \\")
            line = word
        else:
            line = f"{line} {word}" if line else word
    return [("  $ " if i == 0 else "    ") + text for i, text in enumerate([*lines, line])]


def _label_lines(label: str, lines: list[str], screen: Screen) -> list[str]:
    """Indent lines to the text column, the first one with its label."""
    first = screen.apply_style(f"{label:>7}", "dim") if label else " " * 7
    return [(first if i == 0 else " " * 7) + "  " + line for i, line in enumerate(lines)]


# -- rules without a verdict ---------------------------------------------------------------------------


def format_undecided(several: Sequence[UndecidedRule], screen: Screen) -> list[str]:
    """``? GPU004 cannot tell whether …: gpu.capability unknown, permission denied``; more than four in one sentence."""
    if len(several) > 4:
        return _format_many_undecided(several, screen)
    return [line for item in several for line in _format_one_undecided(item, screen)]


def _format_many_undecided(several: Sequence[UndecidedRule], screen: Screen) -> list[str]:
    """Rules that are undecided for the same reason: the reason once, then their codes."""
    keys = list(dict.fromkeys(escape_unprintable(fact.key) for item in several for fact in item.missing))
    reason = escape_unprintable("; ".join(dict.fromkeys(fact.gap for fact in several[0].missing)))
    codes = ", ".join(escape_unprintable(item.code) for item in several)
    shown = ", ".join(keys[:4]) + (f" and {len(keys) - 4} more" if len(keys) > 4 else "")
    sentence = f"{len(several)} rules cannot tell, because {shown} cannot be seen ({reason}): {codes}"
    return screen.lead_paragraph("?", sentence, "undecided")


def _format_one_undecided(item: UndecidedRule, screen: Screen) -> list[str]:
    missing = "; ".join(f"{escape_unprintable(f.key)} unknown, {escape_unprintable(f.gap)}" for f in item.missing)
    says = f"cannot tell whether {lowercase_opener(escape_unprintable(item.says))}"
    return screen.lead_paragraph(
        f"? {escape_unprintable(item.code)}", f"{says}: {missing}" if missing else says, "undecided"
    )


def lowercase_opener(title: str) -> str:
    """Lower-case an opening word inside a sentence: ``The driver is`` -> ``the driver is``; names keep their capitals."""
    first, space, rest = title.partition(" ")
    return f"{first.lower()}{space}{rest}" if first in _SENTENCE_OPENERS else title


def format_unstated(report: Report, screen: Screen, settle_command: str) -> list[str]:
    """The facts a what-if leaves open, each with the rules that need it, and the command that settles them."""
    waiting: dict[str, list[str]] = {}
    for item in report.unstated:
        for fact in item.missing:
            waiting.setdefault(escape_unprintable(fact.key), []).append(escape_unprintable(item.code))
    lead = f"not stated: {units.format_count(len(report.unstated), 'rule')} left open"
    lines = screen.align_ends(lead, screen.truncate_text(settle_command, screen.width))
    rows = [(key, ", ".join(codes)) for key, codes in waiting.items()]
    return lines + ["  " + line for row in screen.format_table(rows, 2) for line in row]


def format_ignored(item: IgnoredFinding, screen: Screen) -> list[str]:
    finding = item.finding
    says = f"{escape_unprintable(finding.says)}; reason: {escape_unprintable(item.reason)}"
    return screen.lead_paragraph(
        f"ignored {escape_unprintable(finding.severity)}[{escape_unprintable(finding.code)}]:", says, "dim"
    )
