"""The command line: parse, call one workflow, render. Results go to stdout, notes to stderr."""

from __future__ import annotations

import gc
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn

REFUSED, OUT_OF_TIME, INTERRUPTED = 2, 124, 130
"""Exit codes that are neither a verdict nor a signal."""

_NAMES = {1: "SIGHUP", 15: "SIGTERM"}


_NO_ROOM = (5, 27, 28, 122)  # EIO, EFBIG, ENOSPC, EDQUOT


class _Terminated(BaseException):
    """SIGTERM or SIGHUP as an exception: the command can still clean up, and report what it has learned."""

    came = 0

    @classmethod
    def exit(cls) -> int:
        """Return the exit code a shell reports: 143 for SIGTERM, 129 for SIGHUP."""
        return 128 + cls.came


def main(argv: Sequence[str] | None = None) -> NoReturn:
    """Run the console script."""
    gc.disable()  # a command of 0.1 s ends before a collection would pay off
    sys.unraisablehook = _dropped
    _leave(obey(sys.argv[1:] if argv is None else argv))


def _leave(code: int) -> NoReturn:
    """Exit at once: Python's ordered shutdown costs 8 ms, and all output is flushed."""
    import atexit

    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            continue  # the reader has closed it
    os._exit(code)


def obey(argv: Sequence[str]) -> int:
    """Run one command line and return its exit code. Never raises."""
    started = time.perf_counter()
    _Terminated.came = 0
    try:
        return _answered(argv, started)
    except KeyboardInterrupt:
        return INTERRUPTED
    except _Terminated:
        return _Terminated.exit()
    except Exception as error:
        code = _failed(error)
        return _Terminated.exit() if _Terminated.came else code  # a closed terminal takes no output


def _answered(argv: Sequence[str], started: float) -> int:
    from gpuready.cli import grammar, terminal

    terminal.occupy()
    told = grammar.parse(argv)
    screen = terminal.screen(told.flags.get("color", "auto"))
    if told.help or told.command == "version":
        terminal.answer(_told(told, screen))
        return 0
    before = _heed(dict.fromkeys(_NAMES, _terminate))
    try:
        answer: tuple[str, int] = grammar.module(told.command).run(told, screen, started)
        terminal.answer(answer[0])
    finally:
        _heed(before)
    if not _Terminated.came:
        return answer[1]
    name = _NAMES[_Terminated.came]
    terminal.sentence(f"gpuready: it was told to end ({name}): the answer has what was learned until then")
    return _Terminated.exit()


def _told(told: Any, screen: Any) -> str:
    if told.command == "version":
        from gpuready import __version__

        return f"gpuready {__version__}\n"
    from gpuready.cli import help

    return help.page(told.command, screen)


def _heed(handlers: dict[int, Any]) -> dict[int, Any]:
    """Set signal handlers and return the old ones; does nothing outside the main thread."""
    # The C part of the signal module: the Python part wraps the numbers in enums, which costs 7 ms.
    from _signal import SIG_IGN, getsignal, signal  # type: ignore[import-not-found]

    before = {}
    for number, handler in handlers.items():
        try:
            if getsignal(number) != SIG_IGN:  # nohup ignores it on purpose
                before[number] = signal(number, handler)
        except (ValueError, TypeError):
            continue
    return before


def _terminate(number: int, frame: object) -> None:
    _Terminated.came = number
    raise _Terminated


def _dropped(what: Any) -> None:
    """Raise a signal's exception again where Python dropped it (in a destructor, in an import)."""
    error = type(what.exc_value)
    if not issubclass(error, (KeyboardInterrupt, _Terminated)):
        sys.__unraisablehook__(what)
        return
    from _signal import ITIMER_REAL, SIGALRM, setitimer, signal

    def again(number: int, frame: object) -> None:
        raise error

    signal(SIGALRM, again)
    setitimer(ITIMER_REAL, 0.002)  # raised right here it would be dropped again


def _failed(error: Exception) -> int:
    """Report in one sentence why there is no result."""
    from gpuready.cli import terminal, words

    if os.environ.get("GPUREADY_DEBUG") == "1":
        import traceback

        terminal.note("".join(traceback.format_exception(error)))
    refused = getattr(sys.modules.get("gpuready.workflow"), "Refused", words.Usage)
    if isinstance(error, (refused, words.Usage)):
        terminal.sentence(f"gpuready: {error}")
        return REFUSED
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        terminal.sentence(f"gpuready: the answer could not be written: {error.strerror}")
        return REFUSED
    if isinstance(error, TimeoutError):
        terminal.sentence(f"gpuready: out of time: {error}")
        return OUT_OF_TIME
    terminal.sentence(
        f"gpuready failed: {_in_words(error)}; please report with gpuready probe -o machine.json"
    )
    return REFUSED


def _in_words(error: Exception) -> str:
    said = str(error).strip()
    if isinstance(error, OSError) and error.strerror:
        said = error.strerror + (f": {error.filename}" if error.filename else "")
        return said
    return f"{type(error).__name__}: {said[:300]}" if said else type(error).__name__
