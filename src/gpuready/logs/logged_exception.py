"""An exception as a log shows it, with its stack."""

from __future__ import annotations

from gpuready.logs.lazy_regex import LazyRegex
from gpuready.model.record import Record

_PYTHON = LazyRegex(r"/lib(?:64)?/python3?(?:\.\d{1,12})?/|/Lib/[a-z_]+\.py$|/(?:runpy|threading|subprocess)\.py$")


class StackFrame(Record):
    """One frame of a traceback."""

    file: str
    line: int
    function: str = ""
    code: str = ""

    @property
    def is_library(self) -> bool:
        """Whether the file is not the user's: installed, or Python's own."""
        path = self.file.replace("\\", "/")
        return "-packages/" in path or path.startswith("<") or bool(_PYTHON.search(path))


class LoggedException(Record):
    """One exception in a log: which process, where, type, and the exception it was raised from."""

    number: int  # its first line
    last: int
    at: int  # line of its type and message
    type: str
    message: str
    source: int = 0
    rank: int | None = None
    host: str = ""
    pid: int | None = None
    role: str = ""
    frames: tuple[StackFrame, ...] = ()
    after: int | None = None  # index of the exception it was raised from or during
    caught: bool = False  # logged, but no process ended by it
    text: str = ""  # all of it, folded
    level: str = ""  # E, W, I where a logger wrote it
    handled: bool = False  # the line before it says that the program goes on
    link: str = ""  # how it relates to the one before it: cause (raise ... from), context (raised while it was handled)
    superseded: bool = False  # another exception was raised while this one was handled, and does not repeat it
    named_type: str = ""  # where its end is missing: the type that its first line or the line before it names

    @property
    def short_type(self) -> str:
        return self.type.rpartition(".")[2].rpartition("::")[2]

    @property
    def user_frame(self) -> StackFrame | None:
        """The innermost frame in the user's own code."""
        return next((frame for frame in reversed(self.frames) if not frame.is_library), None)
