"""The screen of ``gpuready install``: the result, or what would run."""

from __future__ import annotations

from gpuready.render import finding, units
from gpuready.render.escape import visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.model import Step
    from gpuready.planned import Fault, Installed, Plan
    from gpuready.render.layout import Screen

_SHOWN = 40
"""Further faults are only counted; the JSON has all."""

_HEAD = {
    "installed": "installed",
    "unchanged": "unchanged: this plan is what stands there",
    "failed": "failed: the environment is as it was before",
    "dry-run": "dry run: nothing has been run, nothing has been changed",
    "rolled-back": "rolled back",
    "intact": "intact: every file is there and unchanged",
    "damaged": "not as it was published",
}
_GOOD = ("installed", "unchanged", "rolled-back", "intact")


def page(done: Installed, screen: Screen) -> str:
    sections = [_head(done, screen), _plan(done, screen)]
    if done.verdict == "dry-run":
        sections.append(_steps(done, screen))
    if done.says:
        sections.append(screen.paragraph(visible(done.says), 0, 2))
    sections += [_faults(done, screen), *_findings(done, screen)]
    sections.append([line for note in done.notes for line in screen.led("note:", visible(note), "dim")])
    sections.append(_next(done, screen))
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def proposal(done: Installed, screen: Screen) -> str:
    """What would be installed, for a person to confirm."""
    head = screen.paragraph(f"{_name(done.plan)} into {visible(done.environment)}")
    return "\n".join([*head, "", *_plan(done, screen)])


def _head(done: Installed, screen: Screen) -> list[str]:
    word = _HEAD[done.verdict]
    right = units.seconds(done.seconds) if done.seconds else ""
    first, *rest = screen.ends(f"{word}  {visible(done.environment)}", right)
    role = "ok" if done.verdict in _GOOD else "info" if done.verdict == "dry-run" else "error"
    painted = screen.paint(word, role) + first[len(word) :] if first.startswith(word) else first
    return [painted, *rest]


def _name(plan: Any) -> str:
    named = f"{plan.framework} {plan.packages.get(plan.framework, plan.version)}".strip()
    return visible(named or f"a lock of {units.counted(len(plan.lock), 'package')}")


def _plan(done: Installed, screen: Screen) -> list[str]:
    rows = [("generation", visible(done.generation))] if done.generation else []
    if done.previous:
        rows.append(("before it", visible(done.previous)))
    if done.plan is not None:
        rows += _holds(done.plan)
    elif done.need.get("packages"):
        rows.append(("packages", str(done.need["packages"])))
    if done.need.get("size"):
        how = visible(done.need.get("how", ""))
        files = done.need.get("files", 0)
        rows.append(("takes", f"about {units.size(done.need['size'])} and {files} files ({how})"))
    return ["  " + line for row in screen.table(rows, 2) for line in row]


def _holds(plan: Plan) -> list[tuple[str, str]]:
    rows = [("holds", _name(plan))]
    if plan.python:
        rows.append(("python", visible(plan.python)))
    if plan.torch:
        rows.append(("torch", visible(plan.torch)))
    return [*rows, ("packages", str(len(plan.lock)))]


def _steps(done: Installed, screen: Screen) -> list[str]:
    lines = []
    for step in done.steps:
        lines += _step(step, screen)
    if done.steps:
        lines += ["", *screen.paragraph("then every file is looked over, the framework is imported, and gpuready check"
                                        " must be clear; only then is it published, by one switch of the link current", 2)]  # fmt: skip
    return lines


def _step(step: Step, screen: Screen) -> list[str]:
    note = f" ({visible(step.note)})" if step.note else ""
    return [*screen.paragraph(visible(step.does) + note, 2), *("  " + line for line in _whole(step.run))]


def _whole(words: tuple[str, ...]) -> list[str]:
    """A command in full, never truncated, so that it can be pasted."""
    from gpuready.render.escape import command

    lines, line = [], "$"
    for word in command(words):
        if len(line) + len(word) > 72 and line != "$":
            lines.append(line + " \\")
            line = "   " + word
        else:
            line = f"{line} {word}"
    return [*lines, line]


def _faults(done: Installed, screen: Screen) -> list[str]:
    rows = [_fault(fault) for fault in done.faults[:_SHOWN]]
    lines = ["  " + line for row in screen.table(rows, 2) for line in row]
    left = len(done.faults) - len(rows)
    return [*lines, f"  and {left} more: --json lists them all"] if left > 0 else lines


def _fault(fault: Fault) -> tuple[str, str, str]:
    package = visible(fault.package)
    says = visible(fault.says)
    return (
        visible(fault.kind),
        visible(fault.path),
        f"{package}: {says}" if package and says else package or says,
    )


def _findings(done: Installed, screen: Screen) -> list[list[str]]:
    report = done.report
    if report is None:
        return []
    if done.verdict == "failed":
        blocks = [finding.block(f, screen) for f in report.findings if f.severity == "error"]
        return [*blocks, [line for u in report.undecided for line in finding.undecided([u], screen)]]
    warnings = sum(f.severity == "warning" for f in report.findings)
    behind = f", {units.counted(warnings, 'warning')}" if warnings else ""
    aside = "; ".join(f"{visible(i.finding.code)} set aside: {visible(i.reason)}" for i in report.ignored)
    text = f"gpuready check says {report.verdict}{behind}" + (f"; {aside}" if aside else "")
    return [screen.paragraph(text, 2)] if report.judged or report.findings else []


def _next(done: Installed, screen: Screen) -> list[str]:
    from gpuready.render.escape import command

    (folder,) = command((done.environment,))
    if done.verdict in ("installed", "unchanged", "rolled-back"):
        return [f"  source {folder}/bin/activate"]
    if done.verdict == "damaged":
        return screen.paragraph(
            "install the same plan again to get a whole one, or go back with --rollback", 2
        )
    return []


def fields(done: Installed) -> dict[str, Any]:
    from gpuready.render import json

    found = done.to_json()
    if done.report is not None:
        found["report"] = json.report(done.report)
    return found
