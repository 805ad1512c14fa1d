"""The screen of a diagnosis: cause, location, decisive log lines, consequences, fix."""

from __future__ import annotations

from gpuready.model.diagnosis import HEALTHY
from gpuready.model.node_names import fold_node_names
from gpuready.render import units
from gpuready.render.escape import escape_unprintable
from gpuready.render.finding import format_fix_steps, format_labelled_text
from gpuready.render.layout import Screen, display_width, join_sections

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from gpuready.model.diagnosis import Diagnosis, LogEvidence

MAX_EVIDENCE_LINES = 3
"""Shown without -v."""


def diagnosis_json_fields(diagnosis: Diagnosis) -> Mapping[str, Any]:
    return {"verdict": diagnosis.verdict, "exit": diagnosis.exit} | diagnosis.to_json()


def format_diagnosis_line(diagnosis: Diagnosis) -> str:
    """``cuda-oom MEM001 rank 3 on gpu-07: the job needs …``"""
    named = f"{diagnosis.cause} {diagnosis.code}{_failing_rank_text(diagnosis)}"
    lead = named if diagnosis.verdict == "cause" else diagnosis.verdict
    return escape_unprintable(f"{lead}: {diagnosis.says}") + "\n"


def render_diagnosis_screen(diagnosis: Diagnosis, screen: Screen | None = None, verbose: bool = False) -> str:
    display = screen or Screen()
    blocks = [_format_diagnosis_verdict(diagnosis, display)]
    if diagnosis.verdict == "cause":
        blocks += [
            _format_log_evidence(diagnosis, display, verbose),
            _format_consequences(diagnosis, display, verbose),
            format_fix_steps(diagnosis.fix[:4], display, always_safety=False),
            _format_alternatives(diagnosis, display),
        ]
    else:
        blocks.append(_format_consequences(diagnosis, display, verbose))
    blocks.append(display.lead_paragraphs("note:", diagnosis.notes[:6], "dim"))
    return join_sections([*blocks, _format_diagnosis_footer(diagnosis, display)])


def _failing_rank_text(diagnosis: Diagnosis) -> str:
    rank = f" rank {diagnosis.rank}" if diagnosis.rank is not None else ""
    return rank + (f" on {diagnosis.host}" if diagnosis.host else "")


def _format_diagnosis_verdict(diagnosis: Diagnosis, display: Screen) -> list[str]:
    if diagnosis.verdict == "healthy":
        return display.lead_paragraph(f"{HEALTHY}:", diagnosis.says, "ok")
    if diagnosis.verdict == "unknown":
        return display.lead_paragraph("no cause found:", diagnosis.says, "undecided")
    code = f"[{diagnosis.code}]" if diagnosis.code else ""
    lines = display.lead_paragraph(f"{diagnosis.cause}{code}:", diagnosis.says, "error")
    where = _failing_rank_text(diagnosis).strip()
    sure = f"{round(100 * diagnosis.confidence)} % sure"
    lines += format_labelled_text("first", (where or "where is not told") + f", {sure}", display)
    if diagnosis.frame:
        frame = diagnosis.frame
        at = f"{frame.get('file', '')}, line {frame.get('line')}, in {frame.get('function', '')}"
        lines += format_labelled_text("in", at, display)
    return lines + (format_labelled_text("so", diagnosis.so, display) if diagnosis.so else [])


def _format_log_evidence(diagnosis: Diagnosis, display: Screen, verbose: bool) -> list[str]:
    """The decisive lines with their numbers; the first one with its neighbours."""
    lines: list[str] = []
    several = len(diagnosis.logs) > 1
    for i, one in enumerate(diagnosis.evidence if verbose else diagnosis.evidence[:MAX_EVIDENCE_LINES]):
        if several and one.source and (i == 0 or one.source != diagnosis.evidence[i - 1].source):
            lines.append("  " + display.apply_style(display.truncate_text(one.source, display.width - 2), "dim"))
        lines += _format_log_excerpt(one, display, context=i == 0)
    return lines


def _format_log_excerpt(one: LogEvidence, display: Screen, context: bool) -> list[str]:
    width, start = display.width - 9, one.line - len(one.before)
    words = display.wrap_text(one.text, width)
    lines = [_format_numbered_line(None if i else one.line, text, display, True) for i, text in enumerate(words[:5])]
    if len(words) > 5 and display_width(words[4]) < width:
        lines[-1] += display.ellipsis
    if not context:
        return lines
    neighbours = [*enumerate(one.before, start), *enumerate(one.after, one.line + 1)]
    around = [_format_numbered_line(n, display.truncate_text(text, width), display, False) for n, text in neighbours]
    return [*around[: len(one.before)], *lines, *around[len(one.before) :]]


def _format_numbered_line(number: int | None, text: str, display: Screen, decisive: bool) -> str:
    shown = display.apply_style(f"{number or '':>7}", "dim")
    mark = ">" if decisive and number else " "
    return f"{shown}{mark} {display.apply_style(text, 'bold' if decisive else 'dim')}"


def _format_consequences(diagnosis: Diagnosis, display: Screen, verbose: bool) -> list[str]:
    rows = diagnosis.consequences if verbose else diagnosis.consequences[:3]
    lines = []
    for i, one in enumerate(rows):
        ranks = f", ranks {_format_rank_ranges(one.ranks)}" if one.ranks else ""
        text = f"{one.means} ({units.format_count(one.count, 'line')} from {one.line} on{ranks})"
        lines += format_labelled_text("then" if i == 0 else "", text, display)
    left = len(diagnosis.consequences) - len(rows)
    return [*lines, *format_labelled_text("", f"and {left} more of what followed: -v", display)] if left > 0 else lines


def _format_rank_ranges(ranks: Sequence[int]) -> str:
    """``0-3, 5``"""
    shown = fold_node_names(map(str, ranks)).strip("[]").split(",")
    return ", ".join(shown[:8]) + (" and more" if len(shown) > 8 else "")


def _format_alternatives(diagnosis: Diagnosis, display: Screen) -> list[str]:
    lines = []
    for i, other in enumerate(diagnosis.alternatives[:2]):
        at = f", line {other.evidence[0].line}" if other.evidence else ""
        text = f"{other.cause}{f' ({other.code})' if other.code else ''}: {other.says}{at}"
        lines += format_labelled_text("also" if i == 0 else "", text, display)
        if other.decide:
            lines += format_labelled_text("", f"to decide: {other.decide}", display)
    return lines


def _format_diagnosis_footer(diagnosis: Diagnosis, display: Screen) -> list[str]:
    total = sum(log.lines for log in diagnosis.logs)
    name = diagnosis.logs[0].name if len(diagnosis.logs) == 1 else units.format_count(len(diagnosis.logs), "log")
    left = f"read {units.format_count(total, 'line')} of {name}"
    if diagnosis.verdict != "cause" or not diagnosis.code:
        return [display.truncate_text(left, display.width)]
    return display.align_ends(display.truncate_text(left, display.width - 24), f"gpuready explain {diagnosis.code}")
