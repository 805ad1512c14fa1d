"""``gpuready plan``: what to install, and why; as a screen, JSON, or a file for another tool."""

from typing import TYPE_CHECKING, Annotated, TypedDict

from gpuready import workflow
from gpuready.commands import parameters as shared
from gpuready.commands.declaration import Command, Parameter, Request, UsageError, call_command, collect_parameters
from gpuready.commands.result import Result
from gpuready.render import json_results
from gpuready.render import plan as render
from gpuready.render.files import companion_files, guess_file_format, render_plan_file
from gpuready.workflow import fix
from gpuready.workflow.plan import PlanResult, add_file_details, bundle_wheels, plan_here_or_elsewhere

if TYPE_CHECKING:
    from typing_extensions import Unpack


class _Asked(TypedDict, total=False):
    resolve: Annotated[
        bool,
        Parameter(
            "choose only torch, CUDA, Python and kernels, without an index",
            flag="--no-resolve",
            inverted=True,
            default=True,
        ),
    ]


class PlanOptions(
    shared.Machine, shared.Environment, shared.RunPython, shared.Resolve, _Asked, shared.WhatIf, total=False
):
    """Keywords of plan()."""


_FORMATS = (
    "text",
    "json",
    "lock",
    "requirements",
    "pyproject",
    "conda",
    "dockerfile",
    "compose",
    "kubernetes",
    "slurm",
    "shell",
)
_SOURCE_FLAGS = (("find_links", "--find-links"), ("source", "--source"))
_SCREEN_FORMATS = ("text", "json")
"""Formats for the screen; every other format is a file for another tool."""
_SHOWN = {
    "fix": Parameter("the smallest change that fixes the findings of an existing environment", python=False),
    "format": Parameter("the plan as a file", "FORMAT", _FORMATS, python=False),
    "output": Parameter("write to a file; its name can select the format", "FILE", flag="-o", python=False),
    "bundle": Parameter("download every wheel into a folder, for a machine without network", "DIR", python=False),
    **shared.quiet_and_verbose("also why each version was chosen, and what was not"),
}


def run(request: Request) -> Result:
    """Plan, write the requested files, and return the rest."""
    form = _choose_plan_format(request)
    fix, bundle = request.has_switch("fix"), request.get_option("bundle")
    request.arguments = shared.named_frameworks(request)
    if not request.arguments and not fix:
        raise UsageError("gpuready plan takes FRAMEWORK ..., and was given nothing; only --fix finds one by itself")
    if len(request.arguments) > 1 and fix:
        raise UsageError("--fix is of one framework: name one")
    if bundle and request.options.get("resolve") is False:
        raise UsageError("--bundle needs every version: leave out --no-resolve")
    unread = [flag for name, flag in _SOURCE_FLAGS if request.options.get(name)]
    if unread and request.options.get("resolve") is False:
        raise UsageError(f"{unread[0]} is read where versions are resolved: leave out --no-resolve")
    result = _make_plans(request)
    if len(result.plans) > 1 and (form not in _SCREEN_FORMATS or bundle):
        raise UsageError("a file or a bundle is of one environment, and these need one each: name one framework")
    if bundle and result.verdict == "plan":
        sources = {"find_links": tuple(request.get_option("find_links", ())), "offline": request.has_switch("offline")}
        sources["use_project_config"] = request.has_switch("use_project_config")
        bundle_wheels(result.plans[0], bundle, request.show_progress, **sources)
    return _make_result(request, result, form)


def _choose_plan_format(request: Request) -> str:
    chosen = request.get_option("format", "json" if request.has_switch("json") else "")
    if request.has_switch("json") and chosen != "json":
        raise UsageError(f"--json and --format {chosen} cannot be combined: choose one")
    path = request.get_option("output")
    if chosen or path is None:
        return str(chosen or "text")
    return guess_file_format(path) or ("json" if path.endswith(".json") else "text")


def _make_plans(request: Request) -> "PlanResult":
    options = request.pick_options("on", "python", "wants", "contract", "source", "config")
    if request.has_switch("fix"):
        name = request.first_argument or None
        fix_plan = fix.plan_fix(
            name,
            **options,
            what_if=request.what_if,
            run_python=request.has_switch("run_python"),
            note=request.show_progress,
        )
        return PlanResult((fix_plan,), ((fix_plan.framework,),))
    return plan_here_or_elsewhere(
        request.arguments,
        **options,
        what_if=request.what_if,
        resolve=request.get_option("resolve", True),
        find_links=tuple(request.get_option("find_links", ())),
        offline=request.has_switch("offline"),
        allow_build=request.has_switch("allow_build"),
        use_project_config=request.has_switch("use_project_config"),
        note=request.show_progress,
        run_python=request.has_switch("run_python"),
    )


def _make_result(request: Request, result: "PlanResult", form: str) -> Result:
    text = json_results.render_json("plan", result) if form == "json" else None
    if form not in _SCREEN_FORMATS and result.verdict == "plan":
        text = _render_plan_file(result, form)
    made = Result(
        result,
        json_results.renderer("plan"),
        render.render_plan_screens,
        line=lambda result: "".join(render.format_plan_line(one) for one in result.plans),
        text=text,
    )
    path = request.get_option("output", "-")
    if path == "-" or (result.verdict != "plan" and form not in _SCREEN_FORMATS):
        return made
    files = {path: request.format_result(made)} | _companion_files(result, form, path)
    for name, text in files.items():
        workflow.save_text_file(name, text, private=form in _SCREEN_FORMATS)
    request.session.write_sentence(f"wrote {' and '.join(files)}")
    return Result.from_text("", made.exit, result)


def _companion_files(result: "PlanResult", form: str, path: str) -> dict[str, str]:
    """What the written file reads from its own folder, by path."""
    if form not in ("dockerfile", "compose"):
        return {}
    folder = path[: path.rfind("/") + 1]
    return {folder + name: text for name, text in companion_files(add_file_details(result), form).items()}


def _render_plan_file(result: "PlanResult", form: str) -> str:
    try:
        return render_plan_file(add_file_details(result), form)
    except ValueError as error:
        raise UsageError(str(error)) from None


PLAN = Command(
    "plan",
    "what to install, and why; changes nothing",
    run,
    collect_parameters(PlanOptions, _SHOWN, shared.WHAT_IF, shared.AS_IF, shared.COMMON),
    "[FRAMEWORK ...]",
    most=999,
    argument=shared.frameworks_argument(1),
    usual="on as python wants config no-resolve fix format o bundle q v json",
    examples=("vllm --on h100x8 --no-resolve", "axolotl -o requirements.txt", "--fix"),
    settings=("framework", "python"),
)
COMMANDS = (PLAN,)


def plan(*frameworks: str, **options: "Unpack[PlanOptions]") -> Result:
    """Choose what to install, and say why; changes nothing. ``resolve=False`` asks no index."""
    return call_command(PLAN, frameworks, options)
