"""``gpuready diagnose``: why did this run die?"""

from __future__ import annotations

import sys

from gpuready.cli.command_spec import COMMON_FLAGS, CommandSpec, Flag, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.cli.command_spec import ParsedCommand
    from gpuready.model.diagnosis import Diagnosis
    from gpuready.render.layout import Screen


_FLAGS = (
    Flag("--for", "the framework that wrote it, where the log does not say", "FRAMEWORK"),
    Flag("--on", "the machine that it ran on: a recording", "FILE"),
    Flag("--config", "the job's own configuration file: out of memory, it gives the exact change", "FILE"),
    Flag("--watch", "follow a log that is still being written", "FILE"),
    Flag("-q", "one line"),
    Flag("-v", "also every sign that was seen"),
)
COMMANDS = (CommandSpec("diagnose", "why did this run die?", _FLAGS + COMMON_FLAGS, "[LOG ...]", 0, 99999),)


def run(parsed: ParsedCommand, screen: Screen, started: float) -> tuple[str, int]:
    flags = parsed.flags
    if flags.get("q") and flags.get("v"):
        raise UsageError("-q and -v do not go together: choose one")
    if "watch" in flags:
        return _watch_log(parsed, screen)
    logs = list(parsed.arguments) or _logs_from_stdin()
    from gpuready.workflow.diagnose import diagnose_logs

    diagnosis = diagnose_logs(logs, framework=flags.get("for"), on=flags.get("on"))
    if "config" in flags:
        from gpuready.workflow.fit import add_memory_fix

        diagnosis = add_memory_fix(diagnosis, flags["config"], flags.get("on"))
    return format_diagnosis(diagnosis, parsed, screen), diagnosis.exit


def format_diagnosis(result: Diagnosis, parsed: ParsedCommand, screen: Screen) -> str:
    from gpuready.render import diagnosis, json_results

    if parsed.flags.get("json"):
        return json_results.render_diagnose_json(result)
    if parsed.flags.get("q"):
        return diagnosis.format_diagnosis_line(result)
    return diagnosis.render_diagnosis_screen(result, screen, verbose=bool(parsed.flags.get("v")))


def _logs_from_stdin() -> list[str]:
    if sys.stdin is not None and sys.stdin.isatty():
        raise UsageError("gpuready diagnose needs a LOG: a file, a folder of logs, or - for stdin")
    return ["-"]


def _watch_log(parsed: ParsedCommand, screen: Screen) -> tuple[str, int]:
    """Print each cause when it appears; the last one is the result. Ends when the log shows the end of the run, or on Ctrl-C."""
    if parsed.arguments:
        raise UsageError("--watch FILE follows one log: leave the others out")
    from gpuready.cli import terminal
    from gpuready.workflow.diagnose import follow_log

    code = 0
    try:
        for diagnosis in follow_log(parsed.flags["watch"], framework=parsed.flags.get("for")):
            code = diagnosis.exit
            terminal.write_answer(format_diagnosis(diagnosis, parsed, screen))
    except KeyboardInterrupt:
        pass
    return "", code
