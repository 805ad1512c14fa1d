"""``gpuready report``: one HTML page in one file."""

from typing import TYPE_CHECKING, Annotated, Any, TypedDict

from gpuready.commands import parameters as shared
from gpuready.commands.declaration import Command, Parameter, Request, UsageError, call_command, collect_parameters
from gpuready.commands.result import Result
from gpuready.render import html, json_results
from gpuready.render import report as render
from gpuready.workflow import report_data, save_text_file

if TYPE_CHECKING:
    from typing_extensions import Unpack


_DEFAULT_FILE = "gpuready-report.html"


class _Output(TypedDict, total=False):
    output: Annotated[
        shared.PathArgument, Parameter(f"the file to write ({_DEFAULT_FILE}); - is stdout", "FILE", flag="-o")
    ]


class _Parts(TypedDict, total=False):
    proofs: Annotated[shared.PathArgument, Parameter("add proofs: a file of gpuready prove -o", "FILE")]
    bench: Annotated[shared.PathArgument, Parameter("add measurements: a file of gpuready bench -o", "FILE")]
    fit: Annotated[
        shared.PathList,
        Parameter(
            "add the memory of a job: a model, its configuration file, or a file of gpuready fit --json",
            "MODEL|FILE",
            many=True,
        ),
    ]
    plan: Annotated[bool, Parameter("add the plan, made without an index")]
    fleet: Annotated[shared.PathArgument, Parameter("a fleet: a file of gpuready fleet check -o FILE.json", "FILE")]


class ReportOptions(_Output, shared.Machine, shared.Environment, shared.RunPython, _Parts, shared.WhatIf, total=False):
    """Keywords of report()."""


def run(request: Request) -> Result:
    """Gather, draw, write. With --json the document itself is the output, and a page only where -o asks for it."""
    writes_default = request.session.is_command_line and not request.has_switch("json")
    path = request.get_option("output", _DEFAULT_FILE if writes_default else "")
    if path == "-" and request.has_switch("json"):
        raise UsageError("--json and -o - cannot be combined: stdout takes one of them")
    if path not in ("", "-"):
        report_data.check_overwrite(path)
    gathered = report_data.gather_report(
        request.arguments,
        **request.pick_options("on", "python", "proofs", "bench", "fleet"),
        fit=request.get_option("fit", ()),
        plan=request.has_switch("plan"),
        run_python=request.has_switch("run_python"),
        imports="needed" if request.session.may_start_python else "never",
        what_if=request.what_if,
    )
    document = render.report_document_fields(gathered)
    page = _draw_report_page(document) if path else None
    if path not in ("", "-") and page is not None:
        save_text_file(path, page)
        request.session.write_sentence(f"wrote {path}: {len(page.encode()):,} bytes, one file; any browser opens it")
    return Result(
        gathered,
        json_results.renderer("report"),
        lambda gathered, screen: render.format_report_lines(gathered),
        html=lambda gathered: html.embed_page_in_iframe(html.render_report_page(document)),
        text=page if path == "-" else None,
    )


def _draw_report_page(document: "dict[str, Any]") -> str:
    try:
        return html.render_report_page(document)
    except ValueError as error:
        raise UsageError(f"the report cannot be drawn: {error}") from None


REPORT = Command(
    "report",
    "an HTML page: verdict, machine, findings, proofs, memory, plan",
    run,
    collect_parameters(ReportOptions, shared.WHAT_IF, shared.AS_IF, shared.COMMON),
    "[FRAMEWORK ...]",
    most=999,
    examples=("vllm -o report.html", "--on machine.json --proofs proofs.json --plan", "axolotl --json"),
)
COMMANDS = (REPORT,)


def report(*frameworks: str, **options: "Unpack[ReportOptions]") -> Result:
    """Gather checks, proofs, measures, memory and plan on one HTML page. ``output`` is a file to write it to."""
    return call_command(REPORT, frameworks, options)
