"""The screen of a diagnosis: cause, location, decisive log lines, consequences, fix."""

from __future__ import annotations

from gpuready.model.diagnosis import HEALTHY
from gpuready.render.escape import escape_unprintable
from gpuready.render.finding import describe_safety, wrap_command
from gpuready.render.layout import Screen, display_width
from gpuready.render.units import format_count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from gpuready.model import FixStep
    from gpuready.model.diagnosis import Diagnosis, LogEvidence

MAX_EVIDENCE_LINES = 3
"""Shown without -v."""


def diagnosis_json_fields(diagnosis: Diagnosis) -> Mapping[str, Any]:
    return {"verdict": diagnosis.verdict, "exit": diagnosis.exit} | diagnosis.to_json()


def format_diagnosis_line(diagnosis: Diagnosis) -> str:
    """``cuda-oom MEM001 rank 3 on gpu-07: the job needs …``"""
    if diagnosis.verdict != "cause":
        return f"{diagnosis.verdict}: {escape_unprintable(diagnosis.says)}\n"
    return f"{escape_unprintable(diagnosis.cause)} {escape_unprintable(diagnosis.code)}{_failing_rank_text(diagnosis)}: {escape_unprintable(diagnosis.says)}\n"


def render_diagnosis_screen(diagnosis: Diagnosis, screen: Screen | None = None, verbose: bool = False) -> str:
    display = screen or Screen()
    blocks = [_format_diagnosis_verdict(diagnosis, display)]
    if diagnosis.verdict == "cause":
        blocks += [
            _format_log_evidence(diagnosis, display, verbose),
            _format_consequences(diagnosis, display, verbose),
            _format_diagnosis_fixes(diagnosis, display),
            _format_alternatives(diagnosis, display),
        ]
    else:
        blocks += [_format_consequences(diagnosis, display, verbose)]
    blocks.append(_format_diagnosis_notes(diagnosis, display))
    blocks.append(_format_diagnosis_footer(diagnosis, display))
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _failing_rank_text(diagnosis: Diagnosis) -> str:
    rank = f" rank {diagnosis.rank}" if diagnosis.rank is not None else ""
    return rank + (f" on {escape_unprintable(diagnosis.host)}" if diagnosis.host else "")


def _format_diagnosis_verdict(diagnosis: Diagnosis, display: Screen) -> list[str]:
    if diagnosis.verdict == "healthy":
        return display.lead_paragraph(f"{HEALTHY}:", escape_unprintable(diagnosis.says), "ok")
    if diagnosis.verdict == "unknown":
        return display.lead_paragraph("no cause found:", escape_unprintable(diagnosis.says), "undecided")
    lead = (
        f"{escape_unprintable(diagnosis.cause)}[{escape_unprintable(diagnosis.code)}]:"
        if diagnosis.code
        else f"{escape_unprintable(diagnosis.cause)}:"
    )
    lines = display.lead_paragraph(lead, escape_unprintable(diagnosis.says), "error")
    where = _failing_rank_text(diagnosis).strip()
    sure = f"{round(100 * diagnosis.confidence)} % sure"
    lines += _label_diagnosis_text("first", (where or "where is not told") + f", {sure}", display)
    if diagnosis.frame:
        frame = diagnosis.frame
        at = f"{escape_unprintable(str(frame.get('file', '')))}, line {frame.get('line')}, in {escape_unprintable(str(frame.get('function', '')))}"
        lines += _label_diagnosis_text("in", at, display)
    return lines + (_label_diagnosis_text("so", escape_unprintable(diagnosis.so), display) if diagnosis.so else [])


def _label_diagnosis_text(label: str, text: str, display: Screen) -> list[str]:
    first, *rest = display.wrap_text(text, display.width - 9)
    return [display.apply_style(f"{label:>7}", "dim") + "  " + first, *(" " * 9 + line for line in rest)]


def _format_log_evidence(diagnosis: Diagnosis, display: Screen, verbose: bool) -> list[str]:
    """The decisive lines with their numbers; the first one with its neighbours."""
    lines: list[str] = []
    several = len(diagnosis.logs) > 1
    for i, one in enumerate(diagnosis.evidence if verbose else diagnosis.evidence[:MAX_EVIDENCE_LINES]):
        if several and one.source and (i == 0 or one.source != diagnosis.evidence[i - 1].source):
            lines.append(
                " " * 2
                + display.apply_style(display.truncate_text(escape_unprintable(one.source), display.width - 2), "dim")
            )
        lines += _format_log_excerpt(one, display, context=i == 0)
    return lines


def _format_log_excerpt(one: LogEvidence, display: Screen, context: bool) -> list[str]:
    width = display.width - 9
    start = one.line - len(one.before)
    before = [(start + i, text) for i, text in enumerate(one.before)] if context else []
    after = [(one.line + 1 + i, text) for i, text in enumerate(one.after)] if context else []
    lines = [
        _format_numbered_line(number, display.truncate_text(escape_unprintable(text), width), display, False)
        for number, text in before
    ]
    words = display.wrap_text(escape_unprintable(one.text), width)
    lines += [
        _format_numbered_line(one.line if i == 0 else None, text, display, True) for i, text in enumerate(words[:5])
    ]
    if len(words) > 5:
        lines[-1] = lines[-1] + display.ellipsis if display_width(words[4]) < width else lines[-1]
    return lines + [
        _format_numbered_line(number, display.truncate_text(escape_unprintable(text), width), display, False)
        for number, text in after
    ]


def _format_numbered_line(number: int | None, text: str, display: Screen, decisive: bool) -> str:
    shown = f"{number:>7}" if number else " " * 7
    mark = ">" if decisive and number else " "
    return (
        display.apply_style(shown, "dim")
        + mark
        + " "
        + (display.apply_style(text, "bold") if decisive else display.apply_style(text, "dim"))
    )


def _format_consequences(diagnosis: Diagnosis, display: Screen, verbose: bool) -> list[str]:
    rows = diagnosis.consequences if verbose else diagnosis.consequences[:3]
    lines = []
    for i, one in enumerate(rows):
        ranks = f", ranks {_format_rank_ranges(one.ranks)}" if one.ranks else ""
        text = f"{escape_unprintable(one.means)} ({format_count(one.count, 'line')} from {one.line} on{ranks})"
        lines += _label_diagnosis_text("then" if i == 0 else "", text, display)
    left = len(diagnosis.consequences) - len(rows)
    return [*lines, *_label_diagnosis_text("", f"and {left} more of what followed: -v", display)] if left > 0 else lines


def _format_rank_ranges(ranks: Sequence[int]) -> str:
    """``0-3, 5``"""
    parts: list[list[int]] = []
    for rank in ranks:
        if parts and rank == parts[-1][-1] + 1:
            parts[-1].append(rank)
        else:
            parts.append([rank])
    shown = [str(p[0]) if len(p) == 1 else f"{p[0]}-{p[-1]}" for p in parts]
    return ", ".join(shown[:8]) + (" and more" if len(shown) > 8 else "")


def _format_diagnosis_fixes(diagnosis: Diagnosis, display: Screen) -> list[str]:
    lines = []
    for i, step in enumerate(diagnosis.fix[:4]):
        lines += _format_diagnosis_step("or" if i else "fix", step, display)
    return lines


def _format_diagnosis_step(label: str, step: FixStep, display: Screen) -> list[str]:
    how = describe_safety(step) if step.run or step.note else ""
    texts = display.align_ends(escape_unprintable(step.does), how, 9)
    lines = [
        (display.apply_style(f"{label:>7}", "dim") if i == 0 else " " * 7) + "  " + text for i, text in enumerate(texts)
    ]
    return lines + [" " * 9 + text for text in wrap_command(step.run, display, 9)] if step.run else lines


def _format_alternatives(diagnosis: Diagnosis, display: Screen) -> list[str]:
    lines = []
    for i, other in enumerate(diagnosis.alternatives[:2]):
        at = f", line {other.evidence[0].line}" if other.evidence else ""
        text = f"{escape_unprintable(other.cause)}{f' ({escape_unprintable(other.code)})' if other.code else ''}: {escape_unprintable(other.says)}{at}"
        lines += _label_diagnosis_text("also" if i == 0 else "", text, display)
        if other.decide:
            lines += _label_diagnosis_text("", f"to decide: {escape_unprintable(other.decide)}", display)
    return lines


def _format_diagnosis_notes(diagnosis: Diagnosis, display: Screen) -> list[str]:
    return [
        line
        for note in diagnosis.notes[:6]
        for line in display.lead_paragraph("note:", escape_unprintable(note), "dim")
    ]


def _format_diagnosis_footer(diagnosis: Diagnosis, display: Screen) -> list[str]:
    total = sum(log.lines for log in diagnosis.logs)
    name = (
        escape_unprintable(diagnosis.logs[0].name)
        if len(diagnosis.logs) == 1
        else format_count(len(diagnosis.logs), "log")
    )
    left = f"read {format_count(total, 'line')} of {name}"
    if diagnosis.verdict != "cause" or not diagnosis.code:
        return [display.truncate_text(left, display.width)]
    return display.align_ends(
        display.truncate_text(left, display.width - 24), f"gpuready explain {escape_unprintable(diagnosis.code)}"
    )
