"""``gpuready plan``: print the plan as a screen or JSON, or write it as a file for another tool."""

from __future__ import annotations

from gpuready.cli.command_spec import (
    COMMON_FLAGS,
    RESOLVE_FLAGS,
    TARGET_FLAGS,
    WHAT_IF_FLAGS,
    CommandSpec,
    Flag,
    UsageError,
    what_if_values,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuready.cli.command_spec import ParsedCommand
    from gpuready.model.plan import Plan
    from gpuready.render.layout import Screen
    from gpuready.workflow.plan import PlanResult

    CommandOutput = tuple[str, int]


_FLAGS = (
    *TARGET_FLAGS,
    *RESOLVE_FLAGS,
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
    *WHAT_IF_FLAGS,
)
COMMANDS = (
    CommandSpec("plan", "what to install, and why; changes nothing", _FLAGS + COMMON_FLAGS, "[FRAMEWORK ...]", 0, 999),
)
SCREEN_FORMATS = ("text", "json")
"""Formats for the screen; every other format is a file for another tool."""


def run(parsed: ParsedCommand, screen: Screen, started: float) -> CommandOutput:
    """Plan, write the requested files, and return the rest."""
    flags = parsed.flags
    format_name = _choose_plan_format(flags)
    if not parsed.arguments and not flags.get("fix"):
        raise UsageError("gpuready plan takes FRAMEWORK ..., and was given nothing; only --fix finds one by itself")
    if len(parsed.arguments) > 1 and (format_name not in SCREEN_FORMATS or "bundle" in flags or flags.get("fix")):
        raise UsageError("a file, a bundle and --fix are of one environment: name one framework")
    if flags.get("no-resolve") and "bundle" in flags:
        raise UsageError("--bundle needs every version: leave out --no-resolve")
    result = _make_plans(parsed, flags)
    if "bundle" in flags and result.verdict == "plan":
        _download_bundle(result.plans[0], flags)
    return _write_plan(_format_plans(result, format_name, screen, flags), result, format_name, flags)


def _choose_plan_format(flags: Mapping[str, Any]) -> str:
    if flags.get("q") and flags.get("v"):
        raise UsageError("-q and -v do not go together: choose one")
    requested = flags.get("format") or ("json" if flags.get("json") else "")
    if flags.get("json") and requested != "json":
        raise UsageError(f"--json and --format {requested} do not go together: choose one")
    if requested or "o" not in flags:
        return str(requested or "text")
    from gpuready.render.files import guess_file_format

    return guess_file_format(flags["o"]) or ("json" if flags["o"].endswith(".json") else "text")


def _make_plans(parsed: ParsedCommand, flags: Mapping[str, Any]) -> PlanResult:
    from gpuready.cli.terminal import write_note
    from gpuready.workflow import plan

    named = {name: flags.get(name) for name in ("on", "python", "wants", "contract", "source")}
    if flags.get("fix"):
        from gpuready.workflow import fix

        fix_plan = fix.plan_fix(
            next(iter(parsed.arguments), None), **named, what_if=what_if_values(flags), note=write_note
        )
        return plan.PlanResult((fix_plan,), ((fix_plan.framework,),))
    return plan.plan_frameworks(
        list(parsed.arguments),
        **named,
        what_if=what_if_values(flags),
        resolve=not flags.get("no-resolve"),
        find_links=tuple(flags.get("find-links", ())),
        offline=bool(flags.get("offline")),
        note=write_note,
    )


def _download_bundle(chosen: Plan, flags: Mapping[str, Any]) -> None:
    from gpuready.cli.terminal import write_note
    from gpuready.workflow import plan

    plan.bundle_wheels(chosen, flags["bundle"], write_note, flags.get("find-links", ()), bool(flags.get("offline")))


def _format_plans(result: PlanResult, format_name: str, screen: Screen, flags: Mapping[str, Any]) -> str:
    from gpuready.render import plan as render

    if format_name == "json":
        from gpuready.render import json_results

        return json_results.render_plan_json(result)
    if format_name != "text" and result.verdict == "plan":
        from gpuready import workflow
        from gpuready.render.files import render_plan_file
        from gpuready.workflow import plan

        try:
            return render_plan_file(plan.add_file_details(result), format_name)
        except ValueError as error:
            raise workflow.Refused(str(error)) from None
    if flags.get("q"):
        return "".join(render.format_plan_line(one) for one in result.plans)
    return render.render_plan_screens(result, screen, bool(flags.get("v")))


def _write_plan(text: str, result: PlanResult, format_name: str, flags: Mapping[str, Any]) -> CommandOutput:
    path = flags.get("o")
    if path in (None, "-") or (result.verdict != "plan" and format_name not in SCREEN_FORMATS):
        return text, result.exit
    from gpuready import workflow
    from gpuready.cli.terminal import write_sentence

    workflow.save_text_file(path, text)
    write_sentence(f"wrote {path}")
    return "", result.exit
