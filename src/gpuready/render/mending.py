"""The screen of ``gpuready plan --fix``: ordered steps, the findings each resolves, and what remains."""

from __future__ import annotations

from gpuready.render import again, units
from gpuready.render.escape import command, visible
from gpuready.render.layout import Screen, columns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Step
    from gpuready.planned import Conflict, Plan

SAFETY = {"safe": "safe", "ask": "asks first", "manual": "by hand"}


def page(plan: Plan, screen: Screen | None = None) -> str:
    on = screen or Screen()
    sections = [_head(plan, on)]
    sections += [_step(plan, number, step, on) for number, step in enumerate(plan.steps, 1)]
    sections += [_conflict(plan, conflict, on) for conflict in plan.conflicts]
    sections += [[text for note in plan.notes for text in on.led("note:", visible(note), "info")]]
    sections += [_end(plan, on)]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def _head(plan: Plan, screen: Screen) -> list[str]:
    name = f"{plan.framework} {plan.version}" + (f":{plan.variant}" if plan.variant else "")
    left = f"fix for {visible(name)}" + (f" on {visible(plan.machine)}" if plan.machine else "")
    torch = f"torch {plan.torch}" if plan.torch else "no torch"
    then = "then " if plan.steps else ""
    first, *rest = screen.ends(
        left, visible(f"{then}Python {plan.python}, {torch}" if plan.python else torch)
    )
    return [screen.paint(left, "bold") + first[len(left) :] if first.startswith(left) else first, *rest]


def _step(plan: Plan, number: int, step: Step, screen: Screen) -> list[str]:
    """One step: its safety, its command, and the findings it resolves."""
    safety = step.note if step.safety == "manual" and step.note else SAFETY.get(step.safety, step.safety)
    short = safety if len(safety) < screen.width // 2 else SAFETY.get(step.safety, "")
    lines = _titled(f"{number}  {visible(step.does)}", visible(short), screen)
    if step.run:
        lines += screen.paragraph("$ " + " ".join(command(step.run)), 5, 4)
    if step.note and step.note != short:
        lines += screen.paragraph(visible(step.note), 5)
    for reason in plan.because:
        start = f"step {number} "
        if reason.says.startswith(start):
            lines += [
                screen.paint(text, "dim")
                for text in screen.paragraph(visible(reason.says[len(start) :]), 5, 2)
            ]
    return lines


def _titled(left: str, right: str, screen: Screen) -> list[str]:
    """The step's name with its safety at the right edge, or below where it does not fit."""
    if columns(left) + columns(right) + 4 <= screen.width:
        return ["  " + text for text in screen.ends(left, right, 2)]
    return [*screen.paragraph(left, 2, 3), *screen.paragraph(right, 5)]


def _conflict(plan: Plan, conflict: Conflict, screen: Screen) -> list[str]:
    lines = screen.led("impossible:", visible(conflict.says), "error")
    rows = [("found", f.key, units.value(f), f.source) for f in conflict.facts]
    rows += [("needs", n.key, n.want, n.cite) for n in conflict.needs]
    code = conflict.says.partition(" ")[0]
    table = screen.table([tuple(map(visible, row)) for row in rows], 2)
    lines += ["  " + text for row in table for text in row]
    ways = [opening.change for opening in plan.opens if opening.then.endswith(code)]
    return lines + [text for way in ways for text in screen.paragraph(f"elsewhere: {visible(way)}", 2, 2)]


def _end(plan: Plan, screen: Screen) -> list[str]:
    codes = list(dict.fromkeys(reason.about for reason in plan.because if " keeps off " not in reason.says))
    steps = f"{len(plan.steps)} step" + ("" if len(plan.steps) == 1 else "s")
    done = f"{steps} for {', '.join(codes)}" if codes else "nothing to change"
    if plan.verdict != "plan":
        stay = [conflict.says.partition(" ")[0] for conflict in plan.conflicts]
        return screen.led("impossible:", f"{visible(', '.join(stay))} would stay; {visible(done)}", "error")
    lines = screen.led("fix:", f"{visible(done)}; nothing was changed", "ok")
    look = f"then look again: {' '.join(command(again.checking(plan)))}"
    return [*lines, *(screen.paragraph(look, 2, 2) if plan.steps else [])]
