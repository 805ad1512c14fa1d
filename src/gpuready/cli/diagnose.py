"""``gpuready diagnose``: why did this run die?"""

from __future__ import annotations

import sys

from gpuready.cli.words import EVERYWHERE, Command, Flag, Usage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.cli.words import Told
    from gpuready.diagnosed import Diagnosis
    from gpuready.render.layout import Screen


_FLAGS = (
    Flag("--for", "the framework that wrote it, where the log does not say", "FRAMEWORK"),
    Flag("--on", "the machine that it ran on: a recording", "FILE"),
    Flag("--config", "the job's own configuration file: out of memory, it gives the exact change", "FILE"),
    Flag("--watch", "follow a log that is still being written", "FILE"),
    Flag("-q", "one line"),
    Flag("-v", "also every sign that was seen"),
)
COMMANDS = (Command("diagnose", "why did this run die?", _FLAGS + EVERYWHERE, "[LOG ...]", 0, 99999),)


def run(told: Told, screen: Screen, started: float) -> tuple[str, int]:
    flags = told.flags
    if flags.get("q") and flags.get("v"):
        raise Usage("-q and -v do not go together: choose one")
    if "watch" in flags:
        return _watch(told, screen)
    logs = list(told.arguments) or _stdin()
    from gpuready.workflow.diagnosing import diagnose

    found = diagnose(logs, framework=flags.get("for"), on=flags.get("on"))
    if "config" in flags:
        from gpuready.workflow.fitting import mended

        found = mended(found, flags["config"], flags.get("on"))
    return shown(found, told, screen), found.exit


def shown(found: Diagnosis, told: Told, screen: Screen) -> str:
    from gpuready.render import answers, diagnosis

    if told.flags.get("json"):
        return answers.diagnose(found)
    if told.flags.get("q"):
        return diagnosis.line(found)
    return diagnosis.page(found, screen, verbose=bool(told.flags.get("v")))


def _stdin() -> list[str]:
    if sys.stdin is not None and sys.stdin.isatty():
        raise Usage("gpuready diagnose needs a LOG: a file, a folder of logs, or - for stdin")
    return ["-"]


def _watch(told: Told, screen: Screen) -> tuple[str, int]:
    """Print each cause when it appears; the last one is the result. Ends when the log shows the end of the run, or on Ctrl-C."""
    if told.arguments:
        raise Usage("--watch FILE follows one log: leave the others out")
    from gpuready.cli import terminal
    from gpuready.workflow.diagnosing import follow

    code = 0
    try:
        for found in follow(told.flags["watch"], framework=told.flags.get("for")):
            code = found.exit
            terminal.answer(shown(found, told, screen))
    except KeyboardInterrupt:
        pass
    return "", code
