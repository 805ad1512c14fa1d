"""The screen of ``gpuready plan --fix``: ordered steps, the findings each resolves, and what remains."""

from __future__ import annotations

from gpuready.render import command_lines, units
from gpuready.render.escape import escape_unprintable, quote_command_words
from gpuready.render.layout import Screen, display_width, join_sections
from gpuready.render.plan import format_plan_conflict, format_plan_header

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import FixStep
    from gpuready.model.plan import Plan, PlanConflict

STEP_SAFETY_WORDS = {"safe": "safe", "ask": "asks first", "manual": "by hand"}


def render_fix_plan_screen(plan: Plan, screen: Screen | None = None) -> str:
    display = screen or Screen()
    torch = f"torch {plan.torch}" if plan.torch else "no torch"
    then = "then " if plan.steps else ""
    stack = f"{then}Python {plan.python}, {torch}" if plan.python else torch
    sections = [format_plan_header("fix", plan, stack, display)]
    sections += [_format_fix_plan_step(plan, number, step, display) for number, step in enumerate(plan.steps, 1)]
    sections += [_format_fix_conflict(plan, conflict, display) for conflict in plan.conflicts]
    sections.append(display.lead_paragraphs("note:", plan.notes, "info"))
    return join_sections([*sections, _format_fix_summary(plan, display)])


def _format_fix_plan_step(plan: Plan, number: int, step: FixStep, screen: Screen) -> list[str]:
    """One step: its safety, its command, and the findings it resolves."""
    safety = step.note if step.safety == "manual" and step.note else STEP_SAFETY_WORDS.get(step.safety, step.safety)
    short = safety if len(safety) < screen.width // 2 else STEP_SAFETY_WORDS.get(step.safety, "")
    lines = _format_step_title(f"{number}  {step.does}", short, screen)
    if step.run:
        lines += screen.format_paragraph("$ " + " ".join(quote_command_words(step.run)), 5, 4)
    if step.note and step.note != short:
        lines += screen.format_paragraph(step.note, 5)
    start = f"step {number} "
    for reason in plan.because:
        if reason.says.startswith(start):
            lines += screen.dim_paragraph(reason.says[len(start) :], 5, 2)
    return lines


def _format_step_title(left: str, right: str, screen: Screen) -> list[str]:
    """The step's name with its safety at the right edge, or below where it does not fit."""
    left, right = escape_unprintable(left), escape_unprintable(right)
    if display_width(left) + display_width(right) + 4 <= screen.width:
        return ["  " + text for text in screen.align_ends(left, right, 2)]
    return [*screen.format_paragraph(left, 2, 3), *screen.format_paragraph(right, 5)]


def _format_fix_conflict(plan: Plan, conflict: PlanConflict, screen: Screen) -> list[str]:
    code = conflict.says.partition(" ")[0]
    ways = [f"elsewhere: {opening.change}" for opening in plan.opens if opening.then.endswith(code)]
    return format_plan_conflict(conflict, screen) + screen.format_paragraphs(ways, 2, 2)


def _format_fix_summary(plan: Plan, screen: Screen) -> list[str]:
    codes = list(dict.fromkeys(reason.about for reason in plan.because if " keeps off " not in reason.says))
    steps = units.format_count(len(plan.steps), "step")
    summary_text = f"{steps} for {', '.join(codes)}" if codes else "nothing to change"
    if plan.verdict != "plan":
        remaining = ", ".join(conflict.says.partition(" ")[0] for conflict in plan.conflicts)
        return screen.lead_paragraph("impossible:", f"{remaining} would stay; {summary_text}", "error")
    lines = screen.lead_paragraph("fix:", f"{summary_text}; nothing was changed", "ok")
    check_hint = f"then look again: {' '.join(quote_command_words(command_lines.build_check_command(plan)))}"
    return [*lines, *(screen.format_paragraph(check_hint, 2, 2) if plan.steps else [])]
