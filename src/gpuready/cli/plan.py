"""``gpuready plan``: print the plan as a screen or JSON, or write it as a file for another tool."""

from __future__ import annotations

from gpuready.cli.words import EVERYWHERE, PATIENT, RESOLVE, WHAT_IF, Command, Flag, Usage, what_if

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuready.cli.words import Told
    from gpuready.planned import Plan
    from gpuready.render.layout import Screen
    from gpuready.workflow.planning import Planned

    Answer = tuple[str, int]


_FLAGS = (
    *PATIENT,
    *RESOLVE,
    Flag("--no-resolve", "choose only: torch, CUDA, Python and kernels, without asking an index"),
    Flag("--fix", "the least change that turns off the findings of the environment there is"),
    Flag(
        "--format",
        "the plan as a file",
        "FORMAT",
        ("text", "json", "lock", "requirements", "pyproject", "conda", "dockerfile", "slurm", "shell"),
    ),
    Flag("-o", "write it to a file; the name may say the format", "FILE"),
    Flag("--bundle", "download every wheel into a folder, for a machine without network", "DIR"),
    Flag("-q", "one line"),
    Flag("-v", "also every choice that fell"),
    *WHAT_IF,
)
COMMANDS = (
    Command(
        "plan",
        "what to install, and why; changes nothing",
        _FLAGS + EVERYWHERE,
        "[FRAMEWORK ...]",
        0,
        999,
    ),
)
SHOWN = ("text", "json")
"""Formats for the screen; every other format is a file for another tool."""


def run(told: Told, screen: Screen, started: float) -> Answer:
    """Plan, write the requested files, and return the rest."""
    flags = told.flags
    form = _form(flags)
    if not told.arguments and not flags.get("fix"):
        raise Usage(
            "gpuready plan takes FRAMEWORK ..., and was given nothing; only --fix finds one by itself"
        )
    if len(told.arguments) > 1 and (form not in SHOWN or "bundle" in flags or flags.get("fix")):
        raise Usage("a file, a bundle and --fix are of one environment: name one framework")
    if flags.get("no-resolve") and "bundle" in flags:
        raise Usage("--bundle needs every version: leave out --no-resolve")
    found = _planned(told, flags)
    if "bundle" in flags and found.verdict == "plan":
        _bundle(found.plans[0], flags)
    return _written(_text(found, form, screen, flags), found, form, flags)


def _form(flags: Mapping[str, Any]) -> str:
    if flags.get("q") and flags.get("v"):
        raise Usage("-q and -v do not go together: choose one")
    asked = flags.get("format") or ("json" if flags.get("json") else "")
    if flags.get("json") and asked != "json":
        raise Usage(f"--json and --format {asked} do not go together: choose one")
    if asked or "o" not in flags:
        return str(asked or "text")
    from gpuready.render.files import form_of

    return form_of(flags["o"]) or ("json" if flags["o"].endswith(".json") else "text")


def _planned(told: Told, flags: Mapping[str, Any]) -> Planned:
    from gpuready.cli.terminal import note
    from gpuready.workflow import planning

    named = {name: flags.get(name) for name in ("on", "python", "wants", "contract", "source")}
    if flags.get("fix"):
        from gpuready.workflow import fixing

        plan = fixing.fix(next(iter(told.arguments), None), **named, what_if=what_if(flags), note=note)
        return planning.Planned((plan,), ((plan.framework,),))
    return planning.plan(
        list(told.arguments),
        **named,
        what_if=what_if(flags),
        resolve=not flags.get("no-resolve"),
        find_links=tuple(flags.get("find-links", ())),
        offline=bool(flags.get("offline")),
        note=note,
    )


def _bundle(plan: Plan, flags: Mapping[str, Any]) -> None:
    from gpuready.cli.terminal import note
    from gpuready.workflow import planning

    planning.bundle(plan, flags["bundle"], note, flags.get("find-links", ()), bool(flags.get("offline")))


def _text(found: Planned, form: str, screen: Screen, flags: Mapping[str, Any]) -> str:
    from gpuready.render import plan as render

    if form == "json":
        from gpuready.render import answers

        return answers.plan(found)
    if form != "text" and found.verdict == "plan":
        from gpuready import workflow
        from gpuready.render.files import document
        from gpuready.workflow import planning

        try:
            return document(planning.dressed(found), form)
        except ValueError as bad:
            raise workflow.Refused(str(bad)) from None
    if flags.get("q"):
        return "".join(render.line(plan) for plan in found.plans)
    return render.screens(found, screen, bool(flags.get("v")))


def _written(text: str, found: Planned, form: str, flags: Mapping[str, Any]) -> Answer:
    path = flags.get("o")
    if path in (None, "-") or (found.verdict != "plan" and form not in SHOWN):
        return text, found.exit
    from gpuready import workflow
    from gpuready.cli.terminal import sentence

    workflow.save(path, text)
    sentence(f"wrote {path}")
    return "", found.exit
