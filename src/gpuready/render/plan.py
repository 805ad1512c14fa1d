"""The screen of a Plan: chosen versions and reasons, steps; or the conflict that makes it impossible."""

from __future__ import annotations

from gpuready.render import command_lines, units
from gpuready.render.escape import escape_unprintable, quote_command_words
from gpuready.render.layout import Screen

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
        @property
        def verdict(self) -> str: ...


MAX_REJECTED_CHOICES = 4
"""Shown without -v."""

KERNEL_INSTALL_WORDS = {
    "index": "ready-made, from an index",
    "release": "ready-made, from the project's releases",
    "build": "built from source",
    "jit": "compiled on first use",
    "none": "left out",
}


def plan_json_fields(plan: Plan) -> dict[str, Any]:
    return {"verdict": plan.verdict, "exit": plan.exit} | plan.to_json()


def plan_set_json_fields(plan_set: PlanSet) -> dict[str, Any]:
    return {
        "verdict": plan_set.verdict,
        "exit": max(plan.exit for plan in plan_set.plans),
        "plans": [plan_json_fields(plan) for plan in plan_set.plans],
        "environments": [list(names) for names in plan_set.environments],
        "conflicts": [conflict.to_json() for conflict in plan_set.conflicts],
    }


def format_plan_line(plan: Plan) -> str:
    """``axolotl 0.21: torch 2.14.1+cu126, Python 3.13``"""
    name = escape_unprintable(plan_display_name(plan))
    if plan.verdict == "plan" and plan.options.get("fix"):
        return f"{name}: {len(plan.steps)} steps to mend it\n"
    if plan.verdict == "plan":
        return f"{name}: torch {escape_unprintable(plan.torch)}, Python {escape_unprintable(plan.python)}\n"
    why = plan.conflicts[0].says if plan.conflicts else "nothing fits"
    return f"{name}: impossible ({escape_unprintable(why)})\n"


def render_plan_screens(plan_set: PlanSet, screen: Screen, verbose: bool = False) -> str:
    """The screens of the plans; for several, first how they share environments."""
    pages = [render_plan_screen(plan, screen, verbose) for plan in plan_set.plans]
    if len(pages) == 1:
        return pages[0]
    return "\n".join([_format_shared_environments(plan_set, screen), *pages])


def render_plan_screen(plan: Plan, screen: Screen | None = None, verbose: bool = False) -> str:
    display = screen or Screen()
    if plan.options.get("fix"):
        from gpuready.render import fix_plan

        return fix_plan.render_fix_plan_screen(plan, display)
    sections = [_format_plan_header(plan, display)]
    if plan.verdict == "plan":
        sections += [
            _format_chosen_versions(plan, display),
            _format_plan_reasons(plan, display, verbose),
            _format_plan_kernels(plan, display),
        ]
        sections += [_format_plan_steps(plan.steps, display, verbose), _format_rejected_choices(plan, display, verbose)]
    else:
        sections += [_format_plan_conflict(conflict, display) for conflict in plan.conflicts]
        sections += [_format_openings(plan.opens, display)]
    sections += [_format_plan_notes(plan, display), _format_plan_verdict(plan, display)]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def plan_display_name(plan: Plan) -> str:
    return f"{plan.framework} {plan.version}" + (f":{plan.variant}" if plan.variant else "")


def _format_shared_environments(plan_set: PlanSet, screen: Screen) -> str:
    count = len(plan_set.environments)
    shared = "one environment holds them all" if count == 1 else f"they need {count} environments"
    lines = screen.format_paragraph(shared)
    for number, names in enumerate(plan_set.environments, 1):
        lines += screen.format_paragraph(f"{number}  {', '.join(map(escape_unprintable, names))}", 2, 3)
    for conflict in plan_set.conflicts:
        lines += ["", *_format_plan_conflict(conflict, screen, "apart:")]
    return "\n".join(lines) + "\n"


# -- possible plan ---------------------------------------------------------------------------------------


def _format_plan_header(plan: Plan, screen: Screen) -> list[str]:
    left = f"plan for {escape_unprintable(plan_display_name(plan))}" + (
        f" on {escape_unprintable(plan.machine)}" if plan.machine else ""
    )
    first, *rest = screen.align_ends(left, escape_unprintable(plan.platform))
    return [screen.apply_style(left, "bold") + first[len(left) :] if first.startswith(left) else first, *rest]


def _format_chosen_versions(plan: Plan, screen: Screen) -> list[str]:
    own = plan.packages.get(plan.framework, plan.version)
    cuda = f"CUDA {plan.cuda}" if plan.cuda else "no CUDA"
    rows = [("Python", plan.python, ""), ("torch", plan.torch, f"{cuda}, from {describe_torch_source(plan)}")]
    rows += [(name, plan.packages[name], "") for name in ("torchvision", "torchaudio") if name in plan.packages]
    rows += [(plan.framework, own, "")]
    more = len(plan.packages) - len({"torch", "torchvision", "torchaudio", plan.framework} & set(plan.packages))
    rows += [("and", f"{more} more", "with exact versions: --json lists them")] if more > 0 else []
    return [
        "  " + text for row in screen.format_table([tuple(map(escape_unprintable, r)) for r in rows], 2) for text in row
    ]


def describe_torch_source(plan: Plan) -> str:
    if any(row.name == "torch" and row.index == "find-links" for row in plan.lock):
        return "a folder of wheels"
    return "PyPI" if plan.index == "pypi" else f"PyTorch index {plan.index}"


def _format_plan_reasons(plan: Plan, screen: Screen, verbose: bool) -> list[str]:
    lines = [screen.apply_style("why", "bold")] if plan.because else []
    for reason in plan.because:
        lines += screen.format_paragraph(escape_unprintable(reason.says), 2, 4)
        if reason.cite:
            room = screen.width - 6
            cite = (
                screen.wrap_text(escape_unprintable(reason.cite), room)
                if verbose
                else [screen.truncate_text(escape_unprintable(reason.cite), room)]
            )
            lines += [screen.apply_style(" " * 6 + text, "dim") for text in cite]
    return lines


def _format_plan_kernels(plan: Plan, screen: Screen) -> list[str]:
    lines = [screen.apply_style("kernels", "bold")] if plan.kernels else []
    for kernel in plan.kernels:
        first, *rest = screen.align_ends(
            f"{escape_unprintable(kernel.package)} {escape_unprintable(kernel.version)}",
            describe_kernel_install(kernel),
            2,
        )
        lines += ["  " + text for text in (first, *rest)]
        # A wheel without an install step is there only for its Python part: show the reason.
        show_reason = kernel.how in ("build", "jit", "none") or not kernel.steps
        lines += screen.format_paragraph(escape_unprintable(kernel.why), 6) if show_reason else []
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
        lines += screen.format_paragraph(f"{number}  {escape_unprintable(step.does)}", 2, 3)
        if step.run:
            lines += screen.format_paragraph("$ " + " ".join(quote_command_words(step.run)), 5, 4)
        elif step.note:
            lines += screen.format_paragraph(escape_unprintable(step.note), 5)
        if verbose and step.run and step.note:
            lines += [
                screen.apply_style(text, "dim") for text in screen.format_paragraph(escape_unprintable(step.note), 5)
            ]
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
        lines += screen.format_paragraph(f"{escape_unprintable(choice_name)}: {escape_unprintable(why)}", 2, 4)
    rest = len(groups) - len(shown)
    return [*lines, f"  and {rest} more: -v lists them"] if rest else lines


# -- impossible plan -------------------------------------------------------------------------------------


def _format_plan_conflict(conflict: PlanConflict, screen: Screen, lead: str = "impossible:") -> list[str]:
    lines = screen.lead_paragraph(lead, escape_unprintable(conflict.says), "error")
    rows = [("found", f.key, units.format_fact_value(f), f.source) for f in conflict.facts]
    rows += [("needs", n.key, n.want, n.cite) for n in conflict.needs]
    table = screen.format_table([tuple(map(escape_unprintable, row)) for row in rows], 2)
    return [*lines, *("  " + text for row in table for text in row)]


def _format_openings(opens: Sequence[PlanAlternative], screen: Screen) -> list[str]:
    lines = [screen.apply_style("what would open it, the cheapest first", "bold")] if opens else []
    for opening in opens:
        lines += screen.format_paragraph(
            f"{escape_unprintable(opening.change)}: {escape_unprintable(opening.then)}", 2, 4
        )
        lines += screen.format_paragraph(" ".join(quote_command_words(opening.run)), 6, 4) if opening.run else []
    return lines


# -- notes and verdict -----------------------------------------------------------------------------------


def _format_plan_notes(plan: Plan, screen: Screen) -> list[str]:
    return [text for note in plan.notes for text in screen.lead_paragraph("note:", escape_unprintable(note), "info")]


def _format_plan_verdict(plan: Plan, screen: Screen) -> list[str]:
    if plan.verdict == "plan":
        known = (
            f"{len(plan.lock)} packages locked"
            if plan.lock
            else escape_unprintable(plan.resolved or "not resolved here")
        )
        lines = screen.lead_paragraph("plan:", f"{known.removesuffix('.')}; nothing was changed", "ok")
    else:
        lines = screen.lead_paragraph("impossible:", "nothing that the catalogue knows fits", "error")
    if plan.lock:
        lines += ["", *screen.format_paragraph("all of this at once, or none of it:", 2)]
        lines += screen.format_paragraph(" ".join(quote_command_words(command_lines.build_install_command(plan))), 4, 4)
    return (
        [*lines, *screen.format_paragraph(f"chosen by the catalogue of {escape_unprintable(plan.catalog)}", 2)]
        if plan.catalog
        else lines
    )
