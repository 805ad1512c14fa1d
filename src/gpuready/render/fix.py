"""The screens of ``gpuready fix``: the proposal, and what was done and is left."""

from collections.abc import Sequence
from typing import Any

from gpuready.model.facts import verdict_words
from gpuready.model.plan import FixItem, FixOutcome
from gpuready.render import json_document, units
from gpuready.render.layout import Screen, join_sections
from gpuready.render.problem_list import format_list_item

_STATES = {
    "applied": "done",
    "ineffective": "made, and it did not help",
    "unneeded": "not needed any more",
    "failed": "failed",
    "skipped": "left out by --only",
}
_GOOD_VERDICTS = ("fixed", "nothing-to-fix", "undone")
_MAX_REASONS = 3
"""Reasons of one change without -v."""


def render_fix_screen(
    outcome: FixOutcome, screen: Screen, verbose: bool = False, rest: Sequence[tuple[str, tuple[str, ...]]] = ()
) -> str:
    sections = [_format_fix_header(outcome, screen)]
    sections += [_format_fix_item(item, outcome, screen, verbose) for item in outcome.items]
    if outcome.says:
        sections.append(screen.lead_paragraph("failed:", outcome.says, "error"))
    sections.append(screen.lead_paragraphs("note:", outcome.notes, "dim"))
    return join_sections(
        [*sections, _format_what_is_left(outcome, screen), _format_next_commands(outcome, screen, rest)]
    )


def render_fix_proposal(outcome: FixOutcome, screen: Screen) -> str:
    """The numbered changes, for a person to agree to."""
    head = screen.format_header(f"fix {outcome.framework}", _describe_environment(outcome))
    items = [_format_fix_item(item, outcome, screen, False) for item in outcome.items]
    return join_sections([head, *items])


def format_fix_line(outcome: FixOutcome) -> str:
    """``fixed: 2 changes made, nothing left``"""
    applied = [item for item in outcome.items if item.state == "applied"]
    left = len(_errors_left(outcome))
    rest = "nothing left" if not left else f"{units.format_count(left, 'problem')} left"
    return f"{_headline(outcome)}: {units.format_count(len(applied), 'change')} made, {rest}\n"


def fix_json_fields(outcome: FixOutcome) -> dict[str, Any]:
    fields = outcome.to_json()
    for name in ("before", "report"):
        report = getattr(outcome, name)
        fields[name] = None if report is None else json_document.report_json_fields(report)
    return {"verdict": outcome.verdict, "exit": outcome.exit} | fields


def _headline(outcome: FixOutcome) -> str:
    if outcome.is_unchanged:
        return "failed: nothing was changed"
    if outcome.verdict == "undecided" or (outcome.foreseen == "undecided" and not outcome.items):
        return f"{verdict_words('undecided')}: {outcome.report.open_words}"
    if outcome.verdict == "dry-run" and not outcome.items:
        return verdict_words(outcome.foreseen or "nothing-to-fix")
    if outcome.verdict == "dry-run" and all(item.by == "you" for item in outcome.items):
        return verdict_words("by-hand")
    return "would change" if outcome.verdict == "dry-run" else verdict_words(outcome.verdict)


def _format_fix_header(outcome: FixOutcome, screen: Screen) -> list[str]:
    word = _headline(outcome)
    role = "ok" if outcome.verdict in _GOOD_VERDICTS else "info" if outcome.verdict == "dry-run" else "error"
    lines = screen.format_header(word, outcome.framework, role, word)
    where = screen.wrap_text(_describe_environment(outcome), screen.width - 15)
    return lines + screen.label_lines("  environment", where, -13)


def _describe_environment(outcome: FixOutcome) -> str:
    if not outcome.environment:
        return "none was found"
    made = "made by gpuready" if outcome.kind == "gpuready" else outcome.kind
    return f"{outcome.environment} ({made})" if made else outcome.environment


def _format_fix_item(item: FixItem, outcome: FixOutcome, screen: Screen, verbose: bool) -> list[str]:
    """One change: what, who makes it, why, its commands, and how it is taken back."""
    lines = format_list_item(str(item.number), item.does, _describe_state(item), screen, "bold")
    shown = item.why if verbose else item.why[:_MAX_REASONS]
    reasons = [f"{code}: {why}" if why else code for code, why in zip(item.codes, shown, strict=False)]
    if len(item.codes) > len(shown):
        reasons.append(f"and {', '.join(item.codes[len(shown) :])}")
    lines += _label_texts("why", reasons, screen)
    lines += _label_texts("note", [item.note] if item.note else [], screen)
    if item.by == "gpuready" and item.undo and item.state != "failed":
        lines += _label_texts("undo", [item.undo], screen)
    if item.by == "you" or verbose or outcome.verdict == "dry-run":
        lines += [line for words in item.commands for line in screen.format_command(words, 5)]
    return lines


def _label_texts(label: str, texts: Sequence[str], screen: Screen) -> list[str]:
    wrapped = [line for text in texts for line in screen.wrap_text(text, screen.width - 11)]
    return [f"     {label if i == 0 else '':6}{line}" for i, line in enumerate(wrapped)]


def _describe_state(item: FixItem) -> str:
    if item.state != "planned":
        return _STATES[item.state]
    return "by gpuready" if item.by == "gpuready" else "by you"


def _errors_left(outcome: FixOutcome) -> list[Any]:
    return [] if outcome.report is None else [f for f in outcome.report.findings if f.severity == "error"]


def _format_what_is_left(outcome: FixOutcome, screen: Screen) -> list[str]:
    if outcome.verdict not in ("fixed", "partly", "by-hand"):
        return []
    left = _errors_left(outcome)
    if not left and outcome.report is not None and outcome.report.verdict == "undecided":
        label = "checked:" if outcome.verdict == "by-hand" else "checked again:"
        return screen.lead_paragraph(label, f"no error is left, and {outcome.report.open_words}", "warning")
    if not left:
        return screen.lead_paragraph("checked again:", "no problems found", "ok")
    lines = screen.lead_paragraph("left:", units.format_count(len(left), "problem"), "error")
    if outcome.verdict == "by-hand":
        return lines  # the changes name them
    for finding in left:
        lines += ["  " + text for text in screen.align_ends(finding.says, finding.code, 2)]
    return lines


def _format_next_commands(
    outcome: FixOutcome, screen: Screen, rest: Sequence[tuple[str, tuple[str, ...]]]
) -> list[str]:
    rows = list(rest)
    if outcome.settings_file:
        rows.append(("before the job", ("source", outcome.settings_file)))
    if outcome.undo:
        rows.append(("take it back", outcome.undo))
    return screen.format_labelled_commands(rows)
