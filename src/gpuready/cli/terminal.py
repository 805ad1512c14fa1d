"""The terminal: what the answer is written on, and writing that survives a closed pipe."""

from __future__ import annotations

import os
import sys

from gpuready.render.escape import printed, visible
from gpuready.render.layout import Screen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import TextIO

_WIDEST, _NARROWEST, _USUAL = 100, 40, 80


def screen(color: str = "auto") -> Screen:
    """The screen that stdout is: colour by rule, ASCII where it is not UTF-8, 80 columns off a terminal."""
    stream = sys.stdout
    terminal = stream is not None and stream.isatty()
    colour = color == "always" or (color == "auto" and terminal and _wants_colour())
    return Screen(_width(stream) if terminal else _USUAL, colour, not _is_utf8(stream))


def _wants_colour() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _width(stream: TextIO) -> int:
    try:
        return max(_NARROWEST, min(_WIDEST, os.get_terminal_size(stream.fileno()).columns or _USUAL))
    except (OSError, ValueError):
        return _USUAL


def _is_utf8(stream: TextIO | None) -> bool:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return encoding.lower().replace("-", "").replace("_", "") in ("utf8", "utf8sig", "cp65001")


def answer(text: str) -> None:
    """Write the answer in one go. A reader that has gone away is no error; a full disk is (OSError)."""
    if sys.stdout is not None:
        _write(sys.stdout, text)


def note(text: str, *, confided: bool = False) -> None:
    """Lines on stderr, without secrets but for one that is the user's to have; without a stderr there is nobody to tell."""
    if sys.stderr is not None:
        from gpuready.system.redact import redact

        lines = [visible(line) for line in (text if confided else redact(text)).splitlines()]
        try:
            _write(sys.stderr, "".join(line + "\n" for line in lines))
        except OSError:
            return


def sentence(text: str) -> None:
    """A note that is one line, whatever is in it."""
    from gpuready.system.redact import redact

    note(visible(redact(text)))  # before its line ends are made visible: a secret may go over several


def _write(stream: TextIO, text: str) -> None:
    try:
        stream.write(printed(text, getattr(stream, "encoding", None) or "utf-8"))
        stream.flush()
    except BrokenPipeError:
        _silence(stream)
    except OSError:
        _silence(stream)
        raise


def _silence(stream: TextIO) -> None:
    """Send what the stream still holds to nowhere, or Python complains when it flushes at its end."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    except (OSError, ValueError):
        return


def occupy() -> None:
    """Take the numbers of closed standard streams, or the next file opened would become stdout to a child."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        while os.open(os.devnull, os.O_RDWR) < 2:
            pass
