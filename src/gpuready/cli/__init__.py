"""The command line: parse, run one command, print its result. Results go to stdout, notes to stderr."""

import atexit
import gc
import os
import sys
import time
from collections.abc import Sequence
from signal import ITIMER_REAL, SIG_IGN, SIGALRM, getsignal, setitimer, signal
from typing import Any, NoReturn

from gpuready import __version__, system
from gpuready.cli import parser, terminal
from gpuready.cli.parser import ParsedCommand
from gpuready.cli.session import TerminalSession
from gpuready.commands import load_command
from gpuready.commands.declaration import Request, UsageError, convert_words, reject_together
from gpuready.commands.settings import apply_settings
from gpuready.render.layout import Screen
from gpuready.system import AccessError, command_line
from gpuready.system.process.termination import note_interrupt
from gpuready.system.redaction.text import redact_text

REFUSED, OUT_OF_TIME, INTERRUPTED = 2, 124, 130
"""Exit codes that are neither a verdict nor a signal."""

MAX_WORD = 500
"""The longest word of a refusal, in letters."""

_SIGNAL_NAMES = {1: "SIGHUP", 15: "SIGTERM"}


_DISK_ERRNOS = (5, 27, 28, 122)  # EIO, EFBIG, ENOSPC, EDQUOT


class _Terminated(BaseException):
    """SIGTERM or SIGHUP as an exception: the command can still clean up, and report what it has learned."""

    signal_number = 0

    @classmethod
    def exit_code(cls) -> int:
        """Return the exit code a shell reports: 143 for SIGTERM, 129 for SIGHUP."""
        return 128 + cls.signal_number


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the console script."""
    gc.disable()  # a command of 0.1 s ends before a collection would pay off
    sys.unraisablehook = _reraise_dropped_signal
    system.LiveHost.runs_command = True
    _exit_process(run_command_line(sys.argv[1:] if argv is None else argv))


def _exit_process(code: int) -> NoReturn:
    """Exit at once: Python's ordered shutdown costs 8 ms, and all output is flushed."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            continue  # the reader has closed it
    os._exit(code)


def run_command_line(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code. Never raises."""
    started = time.perf_counter()
    _Terminated.signal_number = 0
    try:
        return _run_command(argv, started)
    except KeyboardInterrupt as error:
        _report_interrupt("interrupted", error, INTERRUPTED, argv)
        return INTERRUPTED
    except _Terminated as error:
        _report_interrupt("told to end", error, _Terminated.exit_code(), argv)
        return _Terminated.exit_code()
    except Exception as error:
        code = _report_failure(error, argv)
        return _Terminated.exit_code() if _Terminated.signal_number else code  # a closed terminal takes no output


def _run_command(argv: Sequence[str], started: float) -> int:
    terminal.reserve_standard_streams()
    parsed = parser.parse_command_line(argv)
    screen = terminal.make_screen(parsed.flags.get("color", "auto"))
    if parsed.help or parsed.command == "version":
        terminal.write_answer(_help_or_version(parsed, screen))
        return 0
    _require_answering_disks(argv)
    request = make_request(parsed, screen, started)
    apply_settings(request)
    before = _set_signal_handlers(dict.fromkeys(_SIGNAL_NAMES, _raise_terminated))
    try:
        result = request.run_command()
        answer = request.format_result(result)
        request.session.write_answer(answer)
        _tell_start_words(request, answer)
    except KeyboardInterrupt as error:
        note_interrupt(error, request.command.interrupted)
        raise
    finally:
        request.session.clear_progress()
        _set_signal_handlers(before)
    if not _Terminated.signal_number:
        return result.exit
    name = _SIGNAL_NAMES[_Terminated.signal_number]
    terminal.write_sentence(f"gpuready: it was told to end ({name}): the answer has what was learned until then")
    return _Terminated.exit_code()


def _tell_start_words(request: Request, answer: str) -> None:
    """Tell a person how to start gpuready, where a sentence of the answer names a command by the plain word."""
    words = request.session.screen.program
    is_screen = not request.has_switch("json") and request.get_option("format") is None
    if not is_screen or words == ("gpuready",):
        return
    import shlex

    start = shlex.join(words)
    if "gpuready " in answer.replace(f"{start} ", ""):
        request.session.write_note(f"gpuready is not on your PATH: write {start} for it")


def _require_answering_disks(argv: Sequence[str]) -> None:
    """UsageError where a named file lies on a disk that does not answer: to wait for it could not be interrupted."""
    if any("/" in word for word in argv):
        try:
            command_line.require_answering_disks(argv)
        except AccessError as error:
            raise UsageError(str(error)) from None


def run_parsed_command(parsed: ParsedCommand, screen: Screen, started: float) -> tuple[str, int]:
    """Run a command of a query, and return what it prints and its exit code; no settings file is read."""
    request = make_request(parsed, screen, started)
    request.session.may_start_python = False
    result = request.run_command()
    return request.format_result(result), result.exit


def make_request(parsed: ParsedCommand, screen: Screen, started: float) -> Request:
    """Return the request of a parsed command line; UsageError where a value is wrong."""
    command = load_command(parsed.command)
    options = convert_words(command, parsed.flags)
    request = Request(command, parsed.arguments, options, TerminalSession(screen, started), parsed.rest)
    if "verbose" in command.parameters:
        reject_together(request, "quiet", "verbose")
    return request


def _help_or_version(parsed: Any, screen: Any) -> str:
    if parsed.command == "version":
        return f"gpuready {__version__}\n"
    from gpuready.cli.help import format_help

    return format_help(parsed.command, screen, parsed.help_all)


def _set_signal_handlers(handlers: dict[int, Any]) -> dict[int, Any]:
    """Set signal handlers and return the old ones; does nothing outside the main thread."""
    before = {}
    for number, handler in handlers.items():
        try:
            if getsignal(number) != SIG_IGN:  # nohup ignores it on purpose
                before[number] = signal(number, handler)
        except (ValueError, TypeError):
            continue
    return before


def _raise_terminated(number: int, frame: object) -> None:
    _Terminated.signal_number = number
    raise _Terminated


def _reraise_dropped_signal(what: Any) -> None:
    """Raise a signal's exception again where Python dropped it (in a destructor, in an import)."""
    error = type(what.exc_value)
    if not issubclass(error, (KeyboardInterrupt, _Terminated)):
        sys.__unraisablehook__(what)
        return

    def raise_again(number: int, frame: object) -> None:
        raise error

    signal(SIGALRM, raise_again)
    setitimer(ITIMER_REAL, 0.002)  # raised right here it would be dropped again


def _report_interrupt(what: str, error: BaseException, code: int, argv: Sequence[str]) -> None:
    """Report what a signal undid and left; nothing where nobody knows."""
    left = str(error)
    if left:
        _write_error("interrupted", f"gpuready: {what}: {left}", code, argv)


def _write_error(kind: str, text: str, code: int, argv: Sequence[str]) -> int:
    """Write a sentence to stderr and, where JSON was asked for, an object to stdout. Return the exit code."""
    text = _shorten_words(text)
    terminal.write_sentence(text)
    if _asks_for_json(argv):
        from gpuready.render.json_document import render_error_json

        try:
            terminal.write_answer(render_error_json(kind, redact_text(text.partition(": ")[2]), code))
        except OSError:
            return code
    return code


def _shorten_words(text: str) -> str:
    """Shorten absurdly long words, such as a file's content in the place of its name: a refusal quotes what was typed."""
    return " ".join(
        word if len(word) <= MAX_WORD else f"{word[:80]}... ({len(word)} letters)" for word in text.split(" ")
    )


def _asks_for_json(argv: Sequence[str]) -> bool:
    """Whether the words ask for JSON, also where they could not be parsed; a script's own words do not count."""
    ends = (".py", ".sh") if argv[:1] == ["run"] else ()
    own = next((at for at, word in enumerate(argv) if word == "--" or word.endswith(ends)), len(argv))
    words = argv[:own]
    return bool({"--json", "--format=json"} & {*words}) or "--format json" in " ".join(words)


def _report_failure(error: Exception, argv: Sequence[str]) -> int:
    """Report in one sentence why there is no result."""
    if os.environ.get("GPUREADY_DEBUG") == "1":
        import traceback

        terminal.write_note("".join(traceback.format_exception(error)))
    refused = getattr(sys.modules.get("gpuready.workflow"), "Refused", UsageError)
    not_built = getattr(sys.modules.get("gpuready.catalog"), "MissingTableError", UsageError)
    if isinstance(error, (refused, not_built, UsageError)):
        return _write_error("refused", f"gpuready: {error}", REFUSED, argv)
    if isinstance(error, OSError) and error.errno in _DISK_ERRNOS:
        return _write_error("failed", f"gpuready: the answer could not be written: {error.strerror}", REFUSED, argv)
    if isinstance(error, TimeoutError):
        return _write_error("timeout", f"gpuready: out of time: {error}", OUT_OF_TIME, argv)
    text = f"gpuready failed: {_describe_error(error)}; please report with gpuready probe -o machine.json"
    return _write_error("failed", text, REFUSED, argv)


def _describe_error(error: Exception) -> str:
    text = str(error).strip()
    if isinstance(error, OSError) and error.strerror:
        text = error.strerror + (f": {error.filename}" if error.filename else "")
        return text
    return f"{type(error).__name__}: {text[:300]}" if text else type(error).__name__
