"""The terminal: its width, colours and encoding, and writing that survives a closed pipe."""

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
    """Describe stdout: colour by rule, ASCII where it is not UTF-8, 80 columns off a terminal."""
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
    """Write the result at once. A closed pipe is no error; a full disk is (OSError)."""
    if sys.stdout is not None:
        _write(sys.stdout, text)


def note(text: str, *, confided: bool = False) -> None:
    """Write lines to stderr, redacted unless ``confided`` (a secret that is the user's own); nothing where stderr is closed."""
    if sys.stderr is not None:
        from gpuready.system.redact import redact

        lines = [visible(line) for line in (text if confided else redact(text)).splitlines()]
        try:
            _write(sys.stderr, "".join(line + "\n" for line in lines))
        except OSError:
            return


def sentence(text: str) -> None:
    """Write a note as one line, whatever it contains."""
    from gpuready.system.redact import redact

    note(visible(redact(text)))  # redact first, while line ends are intact: a secret may span lines


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
    """Redirect a stream to /dev/null, so that Python's final flush does not fail."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    except (OSError, ValueError):
        return


def occupy() -> None:
    """Open /dev/null for closed standard streams; else the next opened file would become a child's stdout."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        while os.open(os.devnull, os.O_RDWR) < 2:
            pass
