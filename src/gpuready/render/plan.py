"""The screens of a Plan: chosen versions, reasons and steps; the conflict that makes it impossible; the steps of a fix."""

from __future__ import annotations

from gpuready.render import command_lines, units
from gpuready.render.escape import escape_unprintable, quote_command_words
from gpuready.render.layout import Screen, display_width, join_sections

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Protocol

    from gpuready.model import FixStep
    from gpuready.model.plan import KernelPlan, Plan, PlanAlternative, PlanConflict

    class PlanSet(Protocol):
        """The plans of several frameworks, as the workflow returns them."""

        @property
        def plans(self) -> tuple[Plan, ...]: ...
        @property
        def environments(self) -> tuple[tuple[str, ...], ...]: ...
        @property
        def conflicts(self) -> tuple[PlanConflict, ...]: ...


MAX_REJECTED_CHOICES = 4
"""Shown without -v."""

KERNEL_INSTALL_WORDS = {
    "index": "ready-made, from an index",
    "release": "ready-made, from the project's releases",
    "build": "built from source",
    "jit": "compiled on first use",
    "none": "left out",
}

STEP_SAFETY_WORDS = {"safe": "safe", "ask": "asks first", "manual": "by hand"}


def plan_json_fields(plan: Plan) -> dict[str, Any]:
    return {"verdict": plan.verdict, "exit": plan.exit} | plan.to_json()


def plan_set_json_fields(plan_set: PlanSet) -> dict[str, Any]:
    return {
        "verdict": "plan" if all(plan.verdict == "plan" for plan in plan_set.plans) else "impossible",
        "exit": max(plan.exit for plan in plan_set.plans),
        "plans": [plan_json_fields(plan) for plan in plan_set.plans],
        "environments": [list(names) for names in plan_set.environments],
        "conflicts": [conflict.to_json() for conflict in plan_set.conflicts],
    }


def format_plan_line(plan: Plan) -> str:
    """``axolotl 0.21: torch 2.14.1+cu126, Python 3.13``"""
    if plan.verdict == "plan" and plan.options.get("fix"):
        outcome = f"{len(plan.steps)} steps to mend it"
    elif plan.verdict == "plan":
        outcome = f"torch {plan.torch}, Python {plan.python}"
    else:
        outcome = f"impossible ({plan.conflicts[0].says if plan.conflicts else 'nothing fits'})"
    return escape_unprintable(f"{plan_display_name(plan)}: {outcome}") + "\n"


def render_plan_screens(plan_set: PlanSet, screen: Screen, verbose: bool = False) -> str:
    """The screens of the plans; for several, first how they share environments."""
    pages = [render_plan_screen(plan, screen, verbose) for plan in plan_set.plans]
    if len(pages) == 1:
        return pages[0]
    return "\n".join([_format_shared_environments(plan_set, screen), *pages])


def render_plan_screen(plan: Plan, screen: Screen | None = None, verbose: bool = False) -> str:
    display = screen or Screen()
    if plan.options.get("fix"):
        return render_fix_plan_screen(plan, display)
    sections = [_format_plan_header("plan", plan, plan.platform, display)]
    if plan.verdict == "plan":
        sections += [
            _format_chosen_versions(plan, display),
            _format_plan_reasons(plan, display, verbose),
            _format_plan_kernels(plan, display),
            _format_plan_steps(plan.steps, display, verbose),
            _format_rejected_choices(plan, display, verbose),
        ]
    else:
        sections += [_format_plan_conflict(conflict, display) for conflict in plan.conflicts]
        sections.append(_format_openings(plan.opens, display))
    sections.append(display.lead_paragraphs("note:", plan.notes, "info"))
    return join_sections([*sections, _format_plan_verdict(plan, display)])


def plan_display_name(plan: Plan) -> str:
    return f"{plan.framework} {plan.version}" + (f":{plan.variant}" if plan.variant else "")


def _format_shared_environments(plan_set: PlanSet, screen: Screen) -> str:
    count = len(plan_set.environments)
    shared = "one environment holds them all" if count == 1 else f"they need {count} environments"
    lines = screen.format_paragraph(shared)
    for number, names in enumerate(plan_set.environments, 1):
        lines += screen.format_paragraph(f"{number}  {', '.join(names)}", 2, 3)
    for conflict in plan_set.conflicts:
        lines += ["", *_format_plan_conflict(conflict, screen, "apart:")]
    return "\n".join(lines) + "\n"


# -- possible plan ---------------------------------------------------------------------------------------


def _format_plan_header(what: str, plan: Plan, right: str, screen: Screen) -> list[str]:
    where = f" on {plan.machine}" if plan.machine else ""
    return screen.format_header(f"{what} for {plan_display_name(plan)}{where}", right)


def _format_chosen_versions(plan: Plan, screen: Screen) -> list[str]:
    rows = list_chosen_versions(plan)
    rows[2:2] = [(name, plan.packages[name], "") for name in ("torchvision", "torchaudio") if name in plan.packages]
    more = len(plan.packages) - len({"torch", "torchvision", "torchaudio", plan.framework} & set(plan.packages))
    rows += [("and", f"{more} more", "with exact versions: --json lists them")] if more > 0 else []
    return screen.indent_table(rows)


def list_chosen_versions(plan: Plan) -> list[tuple[str, str, str]]:
    """Name, version and source of Python, torch and the framework."""
    source = f"{f'CUDA {plan.cuda}' if plan.cuda else 'no CUDA'}, from {describe_torch_source(plan)}"
    own = plan.packages.get(plan.framework, plan.version)
    return [("Python", plan.python, ""), ("torch", plan.torch, source), (plan.framework, own, "")]


def describe_torch_source(plan: Plan) -> str:
    if any(row.name == "torch" and row.index == "find-links" for row in plan.lock):
        return "a folder of wheels"
    return "PyPI" if plan.index == "pypi" else f"PyTorch index {plan.index}"


def _format_plan_reasons(plan: Plan, screen: Screen, verbose: bool) -> list[str]:
    lines = [screen.apply_style("why", "bold")] if plan.because else []
    for reason in plan.because:
        lines += screen.format_paragraph(reason.says, 2, 4)
        if verbose:
            lines += screen.dim_paragraph(reason.cite, 6) if reason.cite else []
        elif reason.cite:
            lines.append(screen.apply_style(" " * 6 + screen.truncate_text(reason.cite, screen.width - 6), "dim"))
    return lines


def _format_plan_kernels(plan: Plan, screen: Screen) -> list[str]:
    lines = [screen.apply_style("kernels", "bold")] if plan.kernels else []
    for kernel in plan.kernels:
        named = f"{kernel.package} {kernel.version}"
        lines += ["  " + text for text in screen.align_ends(named, describe_kernel_install(kernel), 2)]
        # A wheel without an install step is there only for its Python part: show the reason.
        show_reason = kernel.how in ("build", "jit", "none") or not kernel.steps
        lines += screen.format_paragraph(kernel.why, 6) if show_reason else []
    return lines


def describe_kernel_install(kernel: KernelPlan) -> str:
    time = ""
    if kernel.seconds:
        low, high = (max(1, round(count / 60)) for count in kernel.seconds)
        time = f", about {low} min" if low == high else f", about {low} to {high} min"
    return KERNEL_INSTALL_WORDS.get(kernel.how, kernel.how) + time


def _format_plan_steps(steps: Sequence[FixStep], screen: Screen, verbose: bool) -> list[str]:
    lines = [screen.apply_style("steps", "bold")] if steps else []
    for number, step in enumerate(steps, 1):
        lines += screen.format_paragraph(f"{number}  {step.does}", 2, 3)
        if step.run:
            lines += screen.format_paragraph("$ " + " ".join(quote_command_words(step.run)), 5, 4)
        elif step.note:
            lines += screen.format_paragraph(step.note, 5)
        if verbose and step.run and step.note:
            lines += screen.dim_paragraph(step.note, 5)
    return lines


def _format_rejected_choices(plan: Plan, screen: Screen, verbose: bool) -> list[str]:
    groups: dict[tuple[str, str], list[str]] = {}
    for rejected in plan.fell:
        release, _, build = rejected.choice.partition("+")
        groups.setdefault((release, rejected.why), []).append(build)
    shown = list(groups.items()) if verbose else list(groups.items())[:MAX_REJECTED_CHOICES]
    lines = [screen.apply_style("not taken", "bold")] if shown else []
    for (release, why), builds in shown:
        choice_name = f"{release} ({', '.join(builds)})" if any(builds) else release
        lines += screen.format_paragraph(f"{choice_name}: {why}", 2, 4)
    rest = len(groups) - len(shown)
    return [*lines, f"  and {rest} more: -v lists them"] if rest else lines


# -- impossible plan -------------------------------------------------------------------------------------


def _format_plan_conflict(conflict: PlanConflict, screen: Screen, lead: str = "impossible:") -> list[str]:
    rows = [("found", f.key, units.format_fact_value(f), f.source) for f in conflict.facts]
    rows += [("needs", n.key, n.want, n.cite) for n in conflict.needs]
    return [*screen.lead_paragraph(lead, conflict.says, "error"), *screen.indent_table(rows)]


def _format_openings(opens: Sequence[PlanAlternative], screen: Screen) -> list[str]:
    lines = [screen.apply_style("what would open it, the cheapest first", "bold")] if opens else []
    for opening in opens:
        lines += screen.format_paragraph(f"{opening.change}: {opening.then}", 2, 4)
        lines += screen.format_paragraph(" ".join(quote_command_words(opening.run)), 6, 4) if opening.run else []
    return lines


def _format_plan_verdict(plan: Plan, screen: Screen) -> list[str]:
    if plan.verdict == "plan":
        known = f"{len(plan.lock)} packages locked" if plan.lock else plan.resolved or "not resolved here"
        lines = screen.lead_paragraph("plan:", f"{known.removesuffix('.')}; nothing was changed", "ok")
    else:
        lines = screen.lead_paragraph("impossible:", "nothing that the catalogue knows fits", "error")
    if plan.lock:
        lines += ["", *screen.format_paragraph("all of this at once, or none of it:", 2)]
        lines += screen.format_paragraph(" ".join(quote_command_words(command_lines.build_install_command(plan))), 4, 4)
    return lines + (screen.format_paragraph(f"chosen by the catalogue of {plan.catalog}", 2) if plan.catalog else [])


# -- plan --fix -----------------------------------------------------------------------------------------


def render_fix_plan_screen(plan: Plan, screen: Screen | None = None) -> str:
    """Ordered steps, the findings each resolves, and what remains."""
    display = screen or Screen()
    torch = f"torch {plan.torch}" if plan.torch else "no torch"
    then = "then " if plan.steps else ""
    stack = f"{then}Python {plan.python}, {torch}" if plan.python else torch
    sections = [_format_plan_header("fix", plan, stack, display)]
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
    return _format_plan_conflict(conflict, screen) + screen.format_paragraphs(ways, 2, 2)


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
