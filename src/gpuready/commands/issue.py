"""``gpuready issue``: what a bug report should say of the machine and the environment, in forty lines of Markdown."""

from gpuready import workflow
from gpuready.commands import parameters as shared
from gpuready.commands.declaration import Command, Request, collect_parameters
from gpuready.commands.result import Result
from gpuready.model import Report
from gpuready.render.issue import render_issue
from gpuready.render.json_document import render_check_json
from gpuready.workflow import redact_shown_text


def run(request: Request) -> Result:
    reports = workflow.check_machine(
        shared.named_frameworks(request), **request.pick_options("on", "python", "config"), what_if=request.what_if
    )
    return Result(reports, _render_json, lambda found, screen: f"{redact_shown_text(render_issue(found))}\n", exit=0)


def _render_json(reports: list[Report]) -> str:
    return redact_shown_text(render_check_json(reports, len(reports) == 1))


ISSUE = Command(
    "issue",
    "the machine, the versions and the findings as Markdown, for a bug report",
    run,
    collect_parameters(shared.Machine, shared.Environment, {"config": shared.CONFIG}, shared.COMMON),
    "[FRAMEWORK ...]",
    most=16,
    examples=("", "axolotl --python .venv", "trl --on machine.json"),
)
COMMANDS = (ISSUE,)
