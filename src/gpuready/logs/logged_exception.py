"""An exception as a log shows it, with its stack; and which of several tells the reason."""

from __future__ import annotations

from collections.abc import Iterator

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

    @property
    def short_type(self) -> str:
        return self.type.rpartition(".")[2].rpartition("::")[2]


_IMPORT_TYPES = ("ImportError", "ModuleNotFoundError", "OSError")
_ASKS_FOR_PACKAGE = LazyRegex(
    r"(?i)\binstall\b|(?:could not|couldn't|cannot|can't|unable to|failed to) (?:import|load|find)|\bis (?:required|needed|not installed|not available)\b|\brequires?\b"
)
"""How a package says that it cannot import another one, whatever the reason."""


def link_exceptions(failures: list[LoggedException]) -> list[LoggedException]:
    """Mark what was handled when another exception ended the process, unless that one repeats it, and what ended an earlier attempt."""
    for number, outer in enumerate(failures):
        at = outer.after
        if outer.link != "context" or at is None or not outer.type or _repeats_exception(outer, failures[at]):
            continue
        if _wraps_import(outer, failures[at]):
            failures[number] = outer.replace(link="cause")
            continue
        while at is not None and not failures[at].superseded:
            failures[at] = failures[at].replace(superseded=True)
            at = failures[at].after
    for number in _earlier_attempts(failures):
        failures[number] = failures[number].replace(caught=True)
    return failures


def _repeats_exception(outer: LoggedException, inner: LoggedException) -> bool:
    words = inner.message.partition("\n")[0][:60]
    return (len(words) > 12 and words in outer.message) or outer.short_type in ("SystemExit", "KeyboardInterrupt")


def _wraps_import(outer: LoggedException, inner: LoggedException) -> bool:
    """Whether a package asks for another one because the import of it failed: why it failed, the inner one says."""
    is_import = outer.short_type in _IMPORT_TYPES[:2] and inner.short_type in _IMPORT_TYPES
    return is_import and bool(_ASKS_FOR_PACKAGE.search(outer.message[:400]))


def _earlier_attempts(failures: list[LoggedException]) -> Iterator[int]:
    """Exceptions that began in the same function of the same package as a later one, and in another environment: of an attempt before it."""
    last: dict[object, str] = {}
    for number in reversed(range(len(failures))):
        failure = failures[number]
        root, *place = _outermost_place(failure)
        if not root:
            continue
        if last.setdefault((failure.source, failure.rank, failure.host, *place), root) != root:
            yield number


def _outermost_place(failure: LoggedException) -> tuple[str, str, str]:
    """Environment, file and function of the first frame of an installed package."""
    paths = ((frame.file.replace("\\", "/").rpartition("-packages/"), frame.function) for frame in failure.frames)
    return next(((root, file, function) for (root, _, file), function in paths if root), ("", "", ""))
