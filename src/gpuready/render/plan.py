"""The screen of a Plan: chosen versions and reasons, steps; or the conflict that makes it impossible."""

from __future__ import annotations

from gpuready.render import again, units
from gpuready.render.escape import command, visible
from gpuready.render.layout import Screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Protocol

    from gpuready.model import Step
    from gpuready.planned import Conflict, Kernel, Opening, Plan

    class Several(Protocol):
        """The plans of several frameworks, as the workflow returns them."""

        @property
        def plans(self) -> tuple[Plan, ...]: ...
        @property
        def environments(self) -> tuple[tuple[str, ...], ...]: ...
        @property
        def conflicts(self) -> tuple[Conflict, ...]: ...
        @property
        def verdict(self) -> str: ...


FEW = 4
"""Shown without -v."""

HOW = {
    "index": "ready-made, from an index",
    "release": "ready-made, from the project's releases",
    "build": "built from source",
    "jit": "compiled on first use",
    "none": "left out",
}


def one(plan: Plan) -> dict[str, Any]:
    return {"verdict": plan.verdict, "exit": plan.exit} | plan.to_json()


def several(found: Several) -> dict[str, Any]:
    return {
        "verdict": found.verdict,
        "exit": max(plan.exit for plan in found.plans),
        "plans": [one(plan) for plan in found.plans],
        "environments": [list(names) for names in found.environments],
        "conflicts": [conflict.to_json() for conflict in found.conflicts],
    }


def line(plan: Plan) -> str:
    """``axolotl 0.21: torch 2.14.1+cu126, Python 3.13``"""
    name = visible(_name(plan))
    if plan.verdict == "plan" and plan.options.get("fix"):
        return f"{name}: {len(plan.steps)} steps to mend it\n"
    if plan.verdict == "plan":
        return f"{name}: torch {visible(plan.torch)}, Python {visible(plan.python)}\n"
    why = plan.conflicts[0].says if plan.conflicts else "nothing fits"
    return f"{name}: impossible ({visible(why)})\n"


def screens(found: Several, screen: Screen, verbose: bool = False) -> str:
    """The screens of the plans; for several, first how they share environments."""
    pages = [page(plan, screen, verbose) for plan in found.plans]
    if len(pages) == 1:
        return pages[0]
    return "\n".join([_environments(found, screen), *pages])


def page(plan: Plan, screen: Screen | None = None, verbose: bool = False) -> str:
    on = screen or Screen()
    if plan.options.get("fix"):
        from gpuready.render import mending

        return mending.page(plan, on)
    sections = [_head(plan, on)]
    if plan.verdict == "plan":
        sections += [_chosen(plan, on), _why(plan, on, verbose), _kernels(plan, on)]
        sections += [_steps(plan.steps, on, verbose), _fell(plan, on, verbose)]
    else:
        sections += [_conflict(conflict, on) for conflict in plan.conflicts]
        sections += [_opens(plan.opens, on)]
    sections += [_notes(plan, on), _verdict(plan, on)]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _name(plan: Plan) -> str:
    return f"{plan.framework} {plan.version}" + (f":{plan.variant}" if plan.variant else "")


def _environments(found: Several, screen: Screen) -> str:
    count = len(found.environments)
    shared = "one environment holds them all" if count == 1 else f"they need {count} environments"
    lines = screen.paragraph(shared)
    for number, names in enumerate(found.environments, 1):
        lines += screen.paragraph(f"{number}  {', '.join(map(visible, names))}", 2, 3)
    for conflict in found.conflicts:
        lines += ["", *_conflict(conflict, screen, "apart:")]
    return "\n".join(lines) + "\n"


# -- possible plan ---------------------------------------------------------------------------------------


def _head(plan: Plan, screen: Screen) -> list[str]:
    left = f"plan for {visible(_name(plan))}" + (f" on {visible(plan.machine)}" if plan.machine else "")
    first, *rest = screen.ends(left, visible(plan.platform))
    return [screen.paint(left, "bold") + first[len(left) :] if first.startswith(left) else first, *rest]


def _chosen(plan: Plan, screen: Screen) -> list[str]:
    own = plan.packages.get(plan.framework, plan.version)
    cuda = f"CUDA {plan.cuda}" if plan.cuda else "no CUDA"
    rows = [("Python", plan.python, ""), ("torch", plan.torch, f"{cuda}, from {_where(plan)}")]
    rows += [
        (name, plan.packages[name], "") for name in ("torchvision", "torchaudio") if name in plan.packages
    ]
    rows += [(plan.framework, own, "")]
    more = len(plan.packages) - len(
        {"torch", "torchvision", "torchaudio", plan.framework} & set(plan.packages)
    )
    rows += [("and", f"{more} more", "with exact versions: --json lists them")] if more > 0 else []
    return ["  " + text for row in screen.table([tuple(map(visible, r)) for r in rows], 2) for text in row]


def _where(plan: Plan) -> str:
    if any(row.name == "torch" and row.index == "find-links" for row in plan.lock):
        return "a folder of wheels"
    return "PyPI" if plan.index == "pypi" else f"PyTorch index {plan.index}"


def _why(plan: Plan, screen: Screen, verbose: bool) -> list[str]:
    lines = [screen.paint("why", "bold")] if plan.because else []
    for reason in plan.because:
        lines += screen.paragraph(visible(reason.says), 2, 4)
        if reason.cite:
            room = screen.width - 6
            cite = (
                screen.wrap(visible(reason.cite), room)
                if verbose
                else [screen.cut(visible(reason.cite), room)]
            )
            lines += [screen.paint(" " * 6 + text, "dim") for text in cite]
    return lines


def _kernels(plan: Plan, screen: Screen) -> list[str]:
    lines = [screen.paint("kernels", "bold")] if plan.kernels else []
    for kernel in plan.kernels:
        first, *rest = screen.ends(f"{visible(kernel.package)} {visible(kernel.version)}", _how(kernel), 2)
        lines += ["  " + text for text in (first, *rest)]
        # A wheel without an install step is there only for its Python part: show the reason.
        told = kernel.how in ("build", "jit", "none") or not kernel.steps
        lines += screen.paragraph(visible(kernel.why), 6) if told else []
    return lines


def _how(kernel: Kernel) -> str:
    time = ""
    if kernel.seconds:
        low, high = (max(1, round(count / 60)) for count in kernel.seconds)
        time = f", about {low} min" if low == high else f", about {low} to {high} min"
    return HOW.get(kernel.how, kernel.how) + time


def _steps(steps: Sequence[Step], screen: Screen, verbose: bool) -> list[str]:
    lines = [screen.paint("steps", "bold")] if steps else []
    for number, step in enumerate(steps, 1):
        lines += screen.paragraph(f"{number}  {visible(step.does)}", 2, 3)
        if step.run:
            lines += screen.paragraph("$ " + " ".join(command(step.run)), 5, 4)
        elif step.note:
            lines += screen.paragraph(visible(step.note), 5)
        if verbose and step.run and step.note:
            lines += [screen.paint(text, "dim") for text in screen.paragraph(visible(step.note), 5)]
    return lines


def _fell(plan: Plan, screen: Screen, verbose: bool) -> list[str]:
    groups: dict[tuple[str, str], list[str]] = {}
    for fallen in plan.fell:
        release, _, build = fallen.choice.partition("+")
        groups.setdefault((release, fallen.why), []).append(build)
    shown = list(groups.items()) if verbose else list(groups.items())[:FEW]
    lines = [screen.paint("not taken", "bold")] if shown else []
    for (release, why), builds in shown:
        named = f"{release} ({', '.join(builds)})" if any(builds) else release
        lines += screen.paragraph(f"{visible(named)}: {visible(why)}", 2, 4)
    rest = len(groups) - len(shown)
    return [*lines, f"  and {rest} more: -v lists them"] if rest else lines


# -- impossible plan -------------------------------------------------------------------------------------


def _conflict(conflict: Conflict, screen: Screen, lead: str = "impossible:") -> list[str]:
    lines = screen.led(lead, visible(conflict.says), "error")
    rows = [("found", f.key, units.value(f), f.source) for f in conflict.facts]
    rows += [("needs", n.key, n.want, n.cite) for n in conflict.needs]
    table = screen.table([tuple(map(visible, row)) for row in rows], 2)
    return [*lines, *("  " + text for row in table for text in row)]


def _opens(opens: Sequence[Opening], screen: Screen) -> list[str]:
    lines = [screen.paint("what would open it, the cheapest first", "bold")] if opens else []
    for opening in opens:
        lines += screen.paragraph(f"{visible(opening.change)}: {visible(opening.then)}", 2, 4)
        lines += screen.paragraph(" ".join(command(opening.run)), 6, 4) if opening.run else []
    return lines


# -- notes and verdict -----------------------------------------------------------------------------------


def _notes(plan: Plan, screen: Screen) -> list[str]:
    return [text for note in plan.notes for text in screen.led("note:", visible(note), "info")]


def _verdict(plan: Plan, screen: Screen) -> list[str]:
    if plan.verdict == "plan":
        known = (
            f"{len(plan.lock)} packages locked"
            if plan.lock
            else visible(plan.resolved or "not resolved here")
        )
        lines = screen.led("plan:", f"{known.removesuffix('.')}; nothing was changed", "ok")
    else:
        lines = screen.led("impossible:", "nothing that the catalogue knows fits", "error")
    if plan.lock:
        lines += ["", *screen.paragraph("all of this at once, or none of it:", 2)]
        lines += screen.paragraph(" ".join(command(again.installing(plan))), 4, 4)
    return (
        [*lines, *screen.paragraph(f"chosen by the catalogue of {visible(plan.catalog)}", 2)]
        if plan.catalog
        else lines
    )
