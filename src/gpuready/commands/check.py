"""``gpuready check``: is this machine ready for a framework?"""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from gpuready import workflow
from gpuready.commands import parameters as shared
from gpuready.commands.declaration import Command, Parameter, Request, UsageError, call_command, collect_parameters
from gpuready.commands.result import Result
from gpuready.commands.suggestions import suggest_after_check
from gpuready.model import EXIT_CODES, Report, worst_verdict
from gpuready.render import check_report
from gpuready.render.check_report import render_check_screen
from gpuready.render.layout import Screen

if TYPE_CHECKING:
    from typing_extensions import Unpack


class _Judged(TypedDict, total=False):
    contract: Annotated[
        shared.PathArgument,
        shared.contract_parameter("also judge by this file of requirements; without a FRAMEWORK, only by it"),
    ]
    dockerfile: Annotated[
        shared.PathArgument,
        Parameter(
            "judge this Dockerfile or compose file; --on and --as driver=VERSION describe its host",
            "FILE",
            mcp=True,
            path="file",
            details="The path of a Dockerfile or compose file to judge, on the host of `on`.",
        ),
    ]
    packages: Annotated[
        shared.PathArgument,
        Parameter(
            "judge what this file names: requirements.txt, environment.yml, pyproject.toml, uv.lock or pylock.toml",
            "FILE",
            mcp=True,
            path="file",
            details="The path of a file of packages to judge on the machine of `on`.",
        ),
    ]


class _Looked(TypedDict, total=False):
    """Never for MCP or the web: one takes long, the others run code of the environment or the image."""

    deep: Annotated[bool, Parameter("compare the contents of every installed file with its RECORD: seconds to minutes")]
    run_import: Annotated[
        bool,
        Parameter(
            "import torch and the framework with the environment's own Python, whatever its files say", flag="--import"
        ),
    ]
    image: Annotated[
        str,
        Parameter(
            "check inside this image, which must be on this machine: starts it with podman or docker, without a network",
            "NAME",
        ),
    ]


class _Ignored(TypedDict, total=False):
    ignore: Annotated[
        "Mapping[str, str]",
        Parameter(
            "ignore a finding; the report shows the reason",
            "CODE=REASON",
            kind="pairs",
            many=True,
            mcp=True,
            web="any",
            max_length=300,
            completes=("@codes",),
            details="Findings to set aside: the code and the reason, which shows in the report.",
        ),
    ]


class CheckOptions(
    shared.Machine,
    shared.Environment,
    shared.RunPython,
    _Looked,
    shared.Wants,
    shared.Job,
    _Judged,
    shared.Strict,
    _Ignored,
    shared.WhatIf,
    total=False,
):
    """Keywords of check()."""


_SHOWN = {
    "since": Parameter("a recording from when it worked: also show what changed", "FILE", python=False),
    "format": Parameter(
        "output format for other tools", "FORMAT", ("text", "json", "sarif", "junit", "prometheus"), python=False
    ),
    **shared.quiet_and_verbose(
        "also the evidence of every check, citations and timings", "one line for each framework"
    ),
}
_WORKFLOW_OPTIONS = ("on", "python", "wants", "model", "config", "contract", "dockerfile", "packages", "image")


def run(request: Request) -> Result:
    form = _choose_check_format(request)
    seconds: dict[str, float] = {}
    request.arguments, files = workflow.sort_asked_files(request.arguments)
    if again := [name for name in files if request.get_option(name) is not None]:
        raise UsageError(f"{files[again[0]]} and --{again[0]} are files of the same kind: check them one at a time")
    request.options |= files
    reports = workflow.check_machine(
        shared.named_frameworks(request),
        **request.pick_options(*_WORKFLOW_OPTIONS),
        ignore=request.get_option("ignore", {}),
        strict=request.has_switch("strict"),
        what_if=request.what_if,
        seconds=seconds,
        partial=request.session.is_command_line,
        settings=request.settings,
        run_python=request.has_switch("run_python"),
        deep=request.has_switch("deep"),
        imports=_choose_imports(request),
        note=request.show_progress,
        ask_index=request.session.is_command_line and request.session.may_start_python,
        look_beside=request.session.is_command_line,
    )
    here = all(request.get_option(name) is None for name in ("on", "dockerfile", "image"))
    reports = workflow.make_fixes_runnable(reports, here)
    verdict = worst_verdict(report.verdict for report in reports)

    is_single = len(request.arguments) + (request.get_option("contract") is not None) == 1

    def render_page(reports: "list[Report]", screen: "Screen", verbose: bool = False) -> str:
        pages = _render_pages(request, reports, screen, verbose, seconds)
        return pages + _format_changes_since(request.get_option("since"), reports, screen)

    text = _format_for_tools(form, reports) if form in ("sarif", "junit", "prometheus") else None
    return Result(
        reports,
        lambda reports: _render_json(reports, is_single),
        render_page,
        verdict=verdict,
        exit=EXIT_CODES[verdict],
        line=_format_lines,
        html=_render_html,
        text=_render_json(reports, is_single) if form == "json" else text,
    )


def _choose_imports(request: Request) -> str:
    """Whether torch and the framework are imported; a settings file names an environment, but it is nobody's word."""
    if request.has_switch("run_import"):
        return "asked"
    is_of_file = request.settings is not None and "python" in request.settings.applied
    return "needed" if request.session.may_start_python and not is_of_file else "never"


def _render_json(reports: "list[Report]", is_single: bool) -> str:
    """Return one Report for one named framework; a list otherwise, of any length."""
    from gpuready.render import json_document

    return json_document.render_check_json(reports, is_single)


def _format_lines(reports: "list[Report]") -> str:
    return "".join(check_report.format_check_line(report) for report in reports)


def _render_html(reports: "list[Report]") -> str:
    from gpuready.render import html

    return html.render_report_fragments(reports)


def _choose_check_format(request: Request) -> str:
    chosen = str(request.get_option("format", "json" if request.has_switch("json") else "text"))
    if request.has_switch("json") and chosen != "json":
        raise UsageError(f"--json and --format {chosen} cannot be combined: choose one")
    return chosen


def _format_for_tools(form: str, reports: "list[Report]") -> str:
    from gpuready.render import junit, prometheus, sarif

    if form == "sarif":
        return sarif.render_sarif(reports, {code: workflow.explain_rule(code) for code in workflow.list_rule_codes()})
    return junit.render_junit_xml(reports) if form == "junit" else prometheus.render_metrics(reports)


def _render_pages(
    request: Request, reports: "list[Report]", screen: "Screen", verbose: bool, seconds: "Mapping[str, float]"
) -> str:
    """Return the screens of all reports; the last one has the time."""
    started = request.session.started
    last: dict[str, Any] = {"elapsed": None if started is None else time.perf_counter() - started, "seconds": seconds}
    rows = zip(reports, suggest_after_check(request, reports), [{}] * (len(reports) - 1) + [last], strict=True)
    return "\n".join(render_check_screen(r, screen, verbose=verbose, commands=c, **more) for r, c, more in rows)


def _format_changes_since(path: str | None, reports: "list[Report]", screen: "Screen") -> str:
    if path is None:
        return ""
    from gpuready.render import facts

    changed = workflow.changes_since_recording(path, reports[0])
    return f"\nsince {path}:\n\n" + facts.render_fact_changes(changed, screen)


CHECK = Command(
    "check",
    "is this machine ready for a framework?",
    run,
    collect_parameters(CheckOptions, _SHOWN, shared.WHAT_IF, shared.AS_IF, shared.COMMON),
    "[FRAMEWORK|FILE ...]",
    most=999,
    argument=shared.frameworks_argument(),
    usual="on as python wants import image strict ignore format q v json",
    examples=(
        "vllm --on h100x8 --as driver=550.54,torch=2.8.0",
        "requirements.txt --on rtx4090",
        "axolotl.yml",
        "--on machine.json --format sarif",
    ),
    settings=("framework", "python", "ignore", "strict"),
)
COMMANDS = (CHECK,)


def check(*frameworks: str, **options: "Unpack[CheckOptions]") -> Result:
    """Check whether this machine (or a recorded or named one, ``on``) is ready for these frameworks. ``found``: the Reports."""
    return call_command(CHECK, frameworks, options)
