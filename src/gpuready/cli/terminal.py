"""The terminal: its width, colours and encoding, and writing that survives a closed pipe."""

import os
import stat
import sys
from typing import TextIO

from gpuready.model.visible_text import escape_unprintable
from gpuready.render.escape import encodable_text
from gpuready.render.layout import Screen
from gpuready.system.command_line import find_new_environment, find_start_words
from gpuready.system.redaction.text import redact_text

_MAX_WIDTH, _MIN_WIDTH, _DEFAULT_WIDTH = 100, 40, 80
_EIO = 5  # of errno, which no command needs to load


def make_screen(color: str = "auto") -> Screen:
    """Describe stdout: colour by rule, ASCII where it is not UTF-8, 80 columns off a terminal."""
    stream = sys.stdout
    terminal = stream is not None and stream.isatty()
    colour = color == "always" or (color == "auto" and terminal and _wants_colour())
    width = _terminal_width(stream) if terminal else _DEFAULT_WIDTH
    screen = Screen(width, colour, not _is_utf8(stream))
    if sys.stderr is None or not sys.stderr.isatty():
        return screen  # for a person, commands that work from this folder
    return screen.replace(
        program=tuple(find_start_words()) or screen.program,
        environment=find_new_environment(),
        new_environment=find_new_environment(takes_own=False),
    )


def _wants_colour() -> bool:
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def _terminal_width(stream: TextIO) -> int:
    try:
        return max(_MIN_WIDTH, min(_MAX_WIDTH, os.get_terminal_size(stream.fileno()).columns or _DEFAULT_WIDTH))
    except (OSError, ValueError):
        return _DEFAULT_WIDTH


def _is_utf8(stream: TextIO | None) -> bool:
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return encoding.lower().replace("-", "").replace("_", "") in ("utf8", "utf8sig", "cp65001")


def write_answer(text: str) -> None:
    """Write the result at once. A closed pipe or terminal is no error; a full disk is (OSError)."""
    if sys.stdout is not None:
        _write_stream(sys.stdout, text)


def write_note(text: str, *, confided: bool = False) -> None:
    """Write lines to stderr, redacted unless ``confided`` (a secret that is the user's own); nothing where stderr is closed."""
    if sys.stderr is not None:
        lines = [escape_unprintable(line) for line in (text if confided else redact_text(text)).splitlines()]
        try:
            _write_stream(sys.stderr, "".join(line + "\n" for line in lines))
        except OSError:
            return


def write_sentence(text: str) -> None:
    """Write a note as one line, whatever it contains."""
    write_note(
        escape_unprintable(redact_text(text))
    )  # redact first, while line ends are intact: a secret may span lines


def _write_stream(stream: TextIO, text: str) -> None:
    try:
        stream.write(encodable_text(text, getattr(stream, "encoding", None) or "utf-8"))
        stream.flush()
    except OSError as error:
        gone = isinstance(error, BrokenPipeError) or _is_closed_terminal(stream, error)
        _discard_stream(stream)
        if not gone:
            raise


def _is_closed_terminal(stream: TextIO, error: OSError) -> bool:
    """Whether the stream's terminal was closed: EIO, and no file that a disk could have lost."""
    try:
        return error.errno == _EIO and stat.S_ISCHR(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):
        return False


def _discard_stream(stream: TextIO) -> None:
    """Redirect a stream to /dev/null, so that Python's final flush does not fail."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    except (OSError, ValueError):
        return


def reserve_standard_streams() -> None:
    """Open /dev/null for closed standard streams; else the next opened file would become a child's stdout."""
    if None in (sys.stdin, sys.stdout, sys.stderr):
        while os.open(os.devnull, os.O_RDWR) < 2:
            pass
