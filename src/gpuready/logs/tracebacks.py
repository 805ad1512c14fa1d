"""Reassemble tracebacks, one process at a time, with their messages and causes."""

from __future__ import annotations

from gpuready.logs.lazy_regex import LazyRegex
from gpuready.model.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Iterable

    from gpuready.logs.log_lines import LogLine

MAX_MESSAGE_LINES = 40
"""Maximum number of lines of a message."""


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

    @property
    def short_type(self) -> str:
        return self.type.rpartition(".")[2].rpartition("::")[2]

    @property
    def user_frame(self) -> StackFrame | None:
        """The innermost frame in the user's own code."""
        return next((frame for frame in reversed(self.frames) if not frame.is_library), None)


_PYTHON = LazyRegex(r"/lib(?:64)?/python3?(?:\.\d{1,12})?/|/Lib/[a-z_]+\.py$|/(?:runpy|threading|subprocess)\.py$")
_FILE = LazyRegex(r'\s*File "([^"]{1,400})", line (\d{1,7})(?:, in ([^\n]{1,200}))?')
_CELL = LazyRegex(r"\s*(?:File |Cell )([^\s,]{1,300}?)(?::| line )(\d{1,7}), in ([^\n(]{1,120})")
_TYPE = LazyRegex(
    r"\s*([A-Za-z_][\w.]{0,120}?(?:Error|Exception|Interrupt|Exit|Timeout|Fault|NotFound|Failed)(?:\(\w{1,60}\))?|Exception)(?:: ?|$)"
)
_ANY_TYPE = LazyRegex(r"((?:[a-z_]\w{0,60}\.){0,8}[A-Z]\w{2,60}): ")
_CHAIN = ("The above exception was the direct cause of", "During handling of the above exception")
_HEAD = "Traceback (most recent call last)"
_TERMINATE = LazyRegex(r"\s*terminate called after throwing an instance of '([\w:]{1,120})'")
_IGNORED = ("Exception ignored in", "Error in atexit", "Error in sys.excepthook")


def begins_exception(text: str) -> bool:
    """Whether a line begins with an exception type and message."""
    match = _TYPE.match(text)
    return match is not None and text[: match.end()].endswith(": ")


class _OpenTraceback:
    """A traceback that is not complete yet."""

    def __init__(self, line: LogLine, chained: bool, ignored: bool):
        self.first = line
        self.chained, self.ignored = chained, ignored
        self.frames: list[StackFrame] = []
        self.text: list[str] = []
        self.type, self.message, self.at, self.last = "", [""], line.number, line.number
        self.logged = bool(line.level)
        self.indent = -1  # of the frames


class TracebackReader:
    """Follows one process, line by line."""

    def __init__(self, failures: list[LoggedException]):
        self.failures = failures
        self.open: _OpenTraceback | None = None
        self.chained = self.ignored = False
        self.previous: int | None = None

    def read_line(self, line: LogLine) -> None:
        text = line.text
        if _HEAD in text:
            self._begin_traceback(line)
        elif any(mark in text for mark in _CHAIN):
            self._close_traceback()
            self.chained = True
        elif text.lstrip().startswith(_IGNORED):
            self._close_traceback()
            self.ignored = True
        elif match := _FILE.match(text) or _CELL.match(text):
            self._add_frame(line, StackFrame(match[1], int(match[2]), (match[3] or "").strip()))
        elif match := _TERMINATE.match(text):
            self._close_traceback()
            self.open = _OpenTraceback(line, False, False)
            self.open.type = match[1]
        elif self.open is not None:
            self._continue_traceback(line)
        elif (match := _TYPE.match(text)) and (not text.startswith((" ", "\t")) or ": " in text[: match.end()]):
            self._begin_bare_exception(line, match)

    def _begin_traceback(self, line: LogLine) -> None:
        if self.open is not None and not self.open.type and not self.open.frames:
            return  # the same header twice: once by the logger, once by Python
        self._close_traceback()
        self.open = _OpenTraceback(line, self.chained, self.ignored)
        self.chained = self.ignored = False

    def _add_frame(self, line: LogLine, frame: StackFrame) -> None:
        if self.open is None or self.open.type:
            self._close_traceback()
            self.open = _OpenTraceback(line, self.chained, self.ignored)
            self.chained = self.ignored = False
        self.open.frames.append(frame)
        self.open.indent = len(line.text) - len(line.text.lstrip())
        self.open.text.append(line.folded_text)
        self.open.last = line.number

    def _continue_traceback(self, line: LogLine) -> None:
        block = self.open
        assert block is not None
        text = line.text
        if not block.type:
            indent = len(text) - len(text.lstrip())
            match = _TYPE.match(text) or (_ANY_TYPE.match(text) if indent < max(block.indent, 1) else None)
            if match:
                block.type = match[1]
                block.at, block.message = line.number, [text[match.end() :].strip()]
            elif block.frames and not block.frames[-1].code and text.strip():
                block.frames[-1] = block.frames[-1].replace(code=line.folded_text)
            elif not text.strip() and self._is_too_far(line, block):
                return
        elif not self._belongs_to_message(line, block):
            self._close_traceback()
            if (match := _TYPE.match(text)) and not text.startswith((" ", "\t")):
                self._begin_bare_exception(line, match)
            return
        else:
            block.message.append(text.strip())
        block.text.append(line.folded_text)
        block.last = line.number

    def _belongs_to_message(self, line: LogLine, block: _OpenTraceback) -> bool:
        """Whether a line still belongs to the message."""
        if (
            len(block.message) >= MAX_MESSAGE_LINES
            or self._is_too_far(line, block)
            or line.place in ("launcher", "kernel")
        ):
            return False
        if (line.level or line.seconds is not None) and not block.logged:
            return False
        if not line.text.strip():
            return block.message[-1] != ""
        strong = _TYPE.match(line.text)
        return not (
            strong and not line.text.startswith((" ", "\t", "nccl")) and len(block.message[0]) > 0 and ": " in line.text
        )

    @staticmethod
    def _is_too_far(line: LogLine, block: _OpenTraceback) -> bool:
        """Whether too many lines are in between; others may be interleaved where the process is known."""
        return line.number - block.last > (4 if line.rank is None and line.pid is None else 2000)

    def _begin_bare_exception(self, line: LogLine, match: re.Match[str]) -> None:
        self.open = _OpenTraceback(line, self.chained, self.ignored)
        self.chained = self.ignored = False
        self.open.type, self.open.message = match[1], [line.text[match.end() :].strip()]
        self.open.text.append(line.folded_text)

    def _close_traceback(self) -> None:
        block, self.open = self.open, None
        if block is None or not (block.type or block.frames):
            return
        first = block.first
        self.failures.append(
            LoggedException(
                first.number, block.last, block.at, block.type, "\n".join(block.message).strip(), first.source,
                first.rank, first.host, first.pid, first.role, tuple(block.frames),
                self.previous if block.chained else None, block.ignored,
                "\n".join(block.text),
            )
        )  # fmt: skip
        self.previous = len(self.failures) - 1


def find_tracebacks(lines: Iterable[LogLine]) -> list[LoggedException]:
    """Every exception, in the order of its first line; processes are kept apart."""
    failures: list[LoggedException] = []
    readers: dict[object, TracebackReader] = {}
    for line in lines:
        key = (line.source, line.rank, line.pid, line.role)
        reader = readers.get(key)
        if reader is None:
            reader = readers[key] = TracebackReader(failures)
        reader.read_line(line)
    for reader in readers.values():
        reader._close_traceback()
    return _sort_exceptions(failures)


def _sort_exceptions(failures: list[LoggedException]) -> list[LoggedException]:
    order = sorted(range(len(failures)), key=lambda i: (failures[i].source, failures[i].number))
    place = {old: new for new, old in enumerate(order)}
    moved = [failures[i] for i in order]
    return [failure if failure.after is None else failure.replace(after=place[failure.after]) for failure in moved]
