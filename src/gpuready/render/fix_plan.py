"""The screen of ``gpuready plan --fix``: ordered steps, the findings each resolves, and what remains."""

from __future__ import annotations

from gpuready.render import command_lines, units
from gpuready.render.escape import escape_unprintable, quote_command_words
from gpuready.render.layout import Screen, display_width

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import FixStep
    from gpuready.model.plan import Plan, PlanConflict

STEP_SAFETY_WORDS = {"safe": "safe", "ask": "asks first", "manual": "by hand"}


def render_fix_plan_screen(plan: Plan, screen: Screen | None = None) -> str:
    display = screen or Screen()
    sections = [_format_fix_header(plan, display)]
    sections += [_format_fix_plan_step(plan, number, step, display) for number, step in enumerate(plan.steps, 1)]
    sections += [_format_fix_conflict(plan, conflict, display) for conflict in plan.conflicts]
    sections += [
        [text for note in plan.notes for text in display.lead_paragraph("note:", escape_unprintable(note), "info")]
    ]
    sections += [_format_fix_summary(plan, display)]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _format_fix_header(plan: Plan, screen: Screen) -> list[str]:
    name = f"{plan.framework} {plan.version}" + (f":{plan.variant}" if plan.variant else "")
    left = f"fix for {escape_unprintable(name)}" + (f" on {escape_unprintable(plan.machine)}" if plan.machine else "")
    torch = f"torch {plan.torch}" if plan.torch else "no torch"
    then = "then " if plan.steps else ""
    first, *rest = screen.align_ends(
        left, escape_unprintable(f"{then}Python {plan.python}, {torch}" if plan.python else torch)
    )
    return [screen.apply_style(left, "bold") + first[len(left) :] if first.startswith(left) else first, *rest]


def _format_fix_plan_step(plan: Plan, number: int, step: FixStep, screen: Screen) -> list[str]:
    """One step: its safety, its command, and the findings it resolves."""
    safety = step.note if step.safety == "manual" and step.note else STEP_SAFETY_WORDS.get(step.safety, step.safety)
    short = safety if len(safety) < screen.width // 2 else STEP_SAFETY_WORDS.get(step.safety, "")
    lines = _format_step_title(f"{number}  {escape_unprintable(step.does)}", escape_unprintable(short), screen)
    if step.run:
        lines += screen.format_paragraph("$ " + " ".join(quote_command_words(step.run)), 5, 4)
    if step.note and step.note != short:
        lines += screen.format_paragraph(escape_unprintable(step.note), 5)
    for reason in plan.because:
        start = f"step {number} "
        if reason.says.startswith(start):
            lines += [
                screen.apply_style(text, "dim")
                for text in screen.format_paragraph(escape_unprintable(reason.says[len(start) :]), 5, 2)
            ]
    return lines


def _format_step_title(left: str, right: str, screen: Screen) -> list[str]:
    """The step's name with its safety at the right edge, or below where it does not fit."""
    if display_width(left) + display_width(right) + 4 <= screen.width:
        return ["  " + text for text in screen.align_ends(left, right, 2)]
    return [*screen.format_paragraph(left, 2, 3), *screen.format_paragraph(right, 5)]


def _format_fix_conflict(plan: Plan, conflict: PlanConflict, screen: Screen) -> list[str]:
    lines = screen.lead_paragraph("impossible:", escape_unprintable(conflict.says), "error")
    rows = [("found", f.key, units.format_fact_value(f), f.source) for f in conflict.facts]
    rows += [("needs", n.key, n.want, n.cite) for n in conflict.needs]
    code = conflict.says.partition(" ")[0]
    table = screen.format_table([tuple(map(escape_unprintable, row)) for row in rows], 2)
    lines += ["  " + text for row in table for text in row]
    ways = [opening.change for opening in plan.opens if opening.then.endswith(code)]
    return lines + [
        text for way in ways for text in screen.format_paragraph(f"elsewhere: {escape_unprintable(way)}", 2, 2)
    ]


def _format_fix_summary(plan: Plan, screen: Screen) -> list[str]:
    codes = list(dict.fromkeys(reason.about for reason in plan.because if " keeps off " not in reason.says))
    steps = f"{len(plan.steps)} step" + ("" if len(plan.steps) == 1 else "s")
    summary_text = f"{steps} for {', '.join(codes)}" if codes else "nothing to change"
    if plan.verdict != "plan":
        remaining = [conflict.says.partition(" ")[0] for conflict in plan.conflicts]
        return screen.lead_paragraph(
            "impossible:",
            f"{escape_unprintable(', '.join(remaining))} would stay; {escape_unprintable(summary_text)}",
            "error",
        )
    lines = screen.lead_paragraph("fix:", f"{escape_unprintable(summary_text)}; nothing was changed", "ok")
    check_hint = f"then look again: {' '.join(quote_command_words(command_lines.build_check_command(plan)))}"
    return [*lines, *(screen.format_paragraph(check_hint, 2, 2) if plan.steps else [])]
