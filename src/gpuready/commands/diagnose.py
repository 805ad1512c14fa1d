"""``gpuready diagnose``: why did this run die?"""

import shlex
import sys
from typing import TYPE_CHECKING, Annotated, TypedDict

from gpuready.commands.declaration import (
    Command,
    Parameter,
    Request,
    UsageError,
    call_command,
    collect_parameters,
    reject_unread,
)
from gpuready.commands.parameters import COMMON, CONFIG_DETAILS, PathArgument, quiet_and_verbose
from gpuready.commands.result import Result
from gpuready.model.diagnosis import Diagnosis
from gpuready.render import diagnosis as render
from gpuready.render import json_results
from gpuready.workflow.diagnose import diagnose_logs, follow_log
from gpuready.workflow.diagnosis_fixes import require_framework
from gpuready.workflow.fit import add_memory_fix, find_gpus, require_job_file
from gpuready.workflow.logged_job import add_fit_command
from gpuready.workflow.machine_facts import is_machine_file
from gpuready.workflow.step_pace import add_pace

if TYPE_CHECKING:
    from typing_extensions import Unpack


MAX_LOG_TEXT = 4 << 20
"""The longest log that MCP accepts as text, in characters."""


class DiagnoseOptions(TypedDict, total=False):
    """Keywords of diagnose()."""

    framework: Annotated[
        str, Parameter("the framework, if the log does not show it", "FRAMEWORK", flag="--for", mcp=True, max_length=60)
    ]
    on: Annotated[
        PathArgument,
        Parameter(
            "a recording of the machine that it ran on, or, with --config, the name of its GPU",
            "FILE|GPU",
            mcp=True,
            path="machine_name",
        ),
    ]
    config: Annotated[
        PathArgument,
        Parameter(
            "the job's configuration file: for out of memory it gives the exact change",
            "FILE",
            mcp=True,
            path="file",
            details=CONFIG_DETAILS,
        ),
    ]
    text: Annotated[
        "str | bytes",
        Parameter("The text of a log, instead of a file.", cli=False, mcp=True, kind="log", max_length=MAX_LOG_TEXT),
    ]
    ask: Annotated[
        str,
        Parameter(
            "if no cause is found, ask this program: redacted evidence, shown before, on stdin; its answer on stdout",
            "COMMAND",
        ),
    ]
    look: Annotated[bool, Parameter("whether the machine is looked at as well", cli=False, default=True)]


_SHOWN = {
    "watch": Parameter("follow a log that is still being written", "FILE", python=False),
    **quiet_and_verbose("also consequences, all evidence and the name of the cause"),
}


def run(request: Request) -> Result:
    machine = request.get_option("on")
    config = request.get_option("config")
    if machine is not None and config is None:
        _require_recording(machine)
    if named := request.get_option("framework"):
        require_framework(named)
    if request.get_option("watch") is not None:
        return _watch_log(request, machine, config)
    diagnosis = diagnose_logs(
        _find_logs(request),
        framework=request.get_option("framework"),
        on=machine,
        look=request.get_option("look", True),
        ask=_split_command(request.get_option("ask")),
        show=request.session.write_note,
        show_progress=request.show_progress,
    )
    diagnosis = _add_job(diagnosis, config, machine)
    if config is not None and request.arguments:
        diagnosis = add_pace(diagnosis, request.arguments, config, find_gpus(machine, False))
    return _make_result(diagnosis)


def _add_job(diagnosis: "Diagnosis", config: "str | None", machine: "str | None") -> "Diagnosis":
    """Add what the job's file tells of a run that was out of memory."""
    if config is None:
        return add_fit_command(diagnosis)
    return add_memory_fix(diagnosis, config, machine)


def _require_recording(name: str) -> None:
    """Refuse the name of a GPU without --config: only the memory and the pace of a job depend on it."""
    if not is_machine_file(name):
        raise UsageError(
            f"--on {name[:60]} is no recording, and of a machine that is only named the job alone is judged: add its file with --config"
        )


def _split_command(text: "str | None") -> list[str]:
    """The words of ``--ask COMMAND``; no shell reads them."""
    if text is None:
        return []
    try:
        words = shlex.split(text)
    except ValueError:
        words = []
    if not words:
        raise UsageError("--ask needs a program, with its arguments in one word: --ask 'ollama run llama3'")
    return words


def _find_logs(request: Request) -> "list[str] | list[list[bytes]]":
    text = request.get_option("text")
    if request.session.is_command_line and not request.arguments:
        if sys.stdin is not None and sys.stdin.isatty():
            raise UsageError("gpuready diagnose needs a LOG: a file, a folder of logs, or - for stdin")
        return ["-"]
    if bool(request.arguments) == (text is not None):
        raise UsageError("diagnose needs logs (files or folders) or text, not both")
    if text is None:
        return request.arguments
    return [[text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text]]


def _make_result(found: "Diagnosis") -> Result:
    return Result(
        found, json_results.renderer("diagnose"), render.render_diagnosis_screen, line=render.format_diagnosis_line
    )


def _watch_log(request: Request, machine: "str | None", config: "str | None") -> Result:
    """Print each cause when it appears; the last one is the result. Ends when the log shows the end of the run, or on Ctrl-C."""
    if request.arguments:
        raise UsageError("--watch FILE follows one log: leave the others out")
    if request.get_option("ask") is not None:
        raise UsageError("--ask is for a log that is complete: leave --watch out")
    reject_unread(request, "watch", "framework", "on", "config")
    if config is not None:
        require_job_file(config)  # refuse it now, and not when the run fails
    code = 0
    try:
        for diagnosis in follow_log(request.get_option("watch"), framework=request.get_option("framework"), on=machine):
            code = diagnosis.exit
            request.session.write_answer(request.format_result(_make_result(_add_job(diagnosis, config, machine))))
    except KeyboardInterrupt:
        pass
    return Result.from_text("", code)


DIAGNOSE = Command(
    "diagnose",
    "find out why a run failed, from its logs",
    run,
    collect_parameters(DiagnoseOptions, _SHOWN, COMMON),
    "[LOG ...]",
    most=99999,
    argument=Parameter(
        "Paths of log files, or of folders of logs.", name="logs", many=True, least=0, most=64, mcp=True, path="log"
    ),
    examples=("train.log", "logs/ --config axolotl.yml", "--watch train.log", "train.log --ask 'ollama run llama3'"),
)
COMMANDS = (DIAGNOSE,)


def diagnose(*logs: PathArgument, **options: "Unpack[DiagnoseOptions]") -> Result:
    """Find out why a run died. ``logs`` are files and folders; ``text`` is the text of a log."""
    return call_command(DIAGNOSE, logs, options)
