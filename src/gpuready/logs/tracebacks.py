"""Reassemble tracebacks, one process at a time, with their messages and causes."""

from __future__ import annotations

from gpuready.logs.pattern import Pattern
from gpuready.noun import Noun

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Iterable

    from gpuready.logs.lines import Line

MESSAGE = 40
"""Maximum number of lines of a message."""


class Frame(Noun):
    """One frame of a traceback."""

    file: str
    line: int
    function: str = ""
    code: str = ""

    @property
    def library(self) -> bool:
        """Whether the file is not the user's: installed, or Python's own."""
        path = self.file.replace("\\", "/")
        return "-packages/" in path or path.startswith("<") or bool(_PYTHON.search(path))


class Failure(Noun):
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
    frames: tuple[Frame, ...] = ()
    after: int | None = None  # index of the exception it was raised from or during
    caught: bool = False  # logged, but no process ended by it
    text: str = ""  # all of it, folded

    _nested = {"frames": Frame}

    @property
    def short(self) -> str:
        return self.type.rpartition(".")[2].rpartition("::")[2]

    @property
    def user_frame(self) -> Frame | None:
        """The innermost frame in the user's own code."""
        return next((frame for frame in reversed(self.frames) if not frame.library), None)


_PYTHON = Pattern(
    r"/lib(?:64)?/python3?(?:\.\d{1,12})?/|/Lib/[a-z_]+\.py$|/(?:runpy|threading|subprocess)\.py$"
)
_FILE = Pattern(r'\s*File "([^"]{1,400})", line (\d{1,7})(?:, in ([^\n]{1,200}))?')
_CELL = Pattern(r"\s*(?:File |Cell )([^\s,]{1,300}?)(?::| line )(\d{1,7}), in ([^\n(]{1,120})")
_TYPE = Pattern(
    r"\s*([A-Za-z_][\w.]{0,120}?(?:Error|Exception|Interrupt|Exit|Timeout|Fault|NotFound|Failed)(?:\(\w{1,60}\))?|Exception)(?:: ?|$)"
)
_ANY_TYPE = Pattern(r"((?:[a-z_]\w{0,60}\.){0,8}[A-Z]\w{2,60}): ")
_CHAIN = ("The above exception was the direct cause of", "During handling of the above exception")
_HEAD = "Traceback (most recent call last)"
_TERMINATE = Pattern(r"\s*terminate called after throwing an instance of '([\w:]{1,120})'")
_IGNORED = ("Exception ignored in", "Error in atexit", "Error in sys.excepthook")


def begins(text: str) -> bool:
    """Whether a line begins with an exception type and message."""
    found = _TYPE.match(text)
    return found is not None and text[: found.end()].endswith(": ")


class _Open:
    """A traceback that is not complete yet."""

    def __init__(self, line: Line, chained: bool, ignored: bool):
        self.first = line
        self.chained, self.ignored = chained, ignored
        self.frames: list[Frame] = []
        self.text: list[str] = []
        self.type, self.message, self.at, self.last = "", [""], line.number, line.number
        self.logged = bool(line.level)
        self.indent = -1  # of the frames


class Teller:
    """Follows one process, line by line."""

    def __init__(self, failures: list[Failure]):
        self.failures = failures
        self.open: _Open | None = None
        self.chained = self.ignored = False
        self.previous: int | None = None

    def hear(self, line: Line) -> None:
        text = line.text
        if _HEAD in text:
            self._begin(line)
        elif any(mark in text for mark in _CHAIN):
            self._close()
            self.chained = True
        elif text.lstrip().startswith(_IGNORED):
            self._close()
            self.ignored = True
        elif found := _FILE.match(text) or _CELL.match(text):
            self._frame(line, Frame(found[1], int(found[2]), (found[3] or "").strip()))
        elif found := _TERMINATE.match(text):
            self._close()
            self.open = _Open(line, False, False)
            self.open.type = found[1]
        elif self.open is not None:
            self._inside(line)
        elif (found := _TYPE.match(text)) and (
            not text.startswith((" ", "\t")) or ": " in text[: found.end()]
        ):
            self._bare(line, found)

    def _begin(self, line: Line) -> None:
        if self.open is not None and not self.open.type and not self.open.frames:
            return  # the same header twice: once by the logger, once by Python
        self._close()
        self.open = _Open(line, self.chained, self.ignored)
        self.chained = self.ignored = False

    def _frame(self, line: Line, frame: Frame) -> None:
        if self.open is None or self.open.type:
            self._close()
            self.open = _Open(line, self.chained, self.ignored)
            self.chained = self.ignored = False
        self.open.frames.append(frame)
        self.open.indent = len(line.text) - len(line.text.lstrip())
        self.open.text.append(line.words)
        self.open.last = line.number

    def _inside(self, line: Line) -> None:
        block = self.open
        assert block is not None
        text = line.text
        if not block.type:
            indent = len(text) - len(text.lstrip())
            found = _TYPE.match(text) or (_ANY_TYPE.match(text) if indent < max(block.indent, 1) else None)
            if found:
                block.type = found[1]
                block.at, block.message = line.number, [text[found.end() :].strip()]
            elif block.frames and not block.frames[-1].code and text.strip():
                block.frames[-1] = block.frames[-1].but(code=line.words)
            elif not text.strip() and self._far(line, block):
                return
        elif not self._goes_on(line, block):
            self._close()
            if (found := _TYPE.match(text)) and not text.startswith((" ", "\t")):
                self._bare(line, found)
            return
        else:
            block.message.append(text.strip())
        block.text.append(line.words)
        block.last = line.number

    def _goes_on(self, line: Line, block: _Open) -> bool:
        """Whether a line still belongs to the message."""
        if len(block.message) >= MESSAGE or self._far(line, block) or line.place in ("launcher", "kernel"):
            return False
        if (line.level or line.seconds is not None) and not block.logged:
            return False
        if not line.text.strip():
            return block.message[-1] != ""
        strong = _TYPE.match(line.text)
        return not (
            strong
            and not line.text.startswith((" ", "\t", "nccl"))
            and len(block.message[0]) > 0
            and ": " in line.text
        )

    @staticmethod
    def _far(line: Line, block: _Open) -> bool:
        """Whether too many lines are in between; others may be interleaved where the process is known."""
        return line.number - block.last > (4 if line.rank is None and line.pid is None else 2000)

    def _bare(self, line: Line, found: re.Match[str]) -> None:
        self.open = _Open(line, self.chained, self.ignored)
        self.chained = self.ignored = False
        self.open.type, self.open.message = found[1], [line.text[found.end() :].strip()]
        self.open.text.append(line.words)

    def _close(self) -> None:
        block, self.open = self.open, None
        if block is None or not (block.type or block.frames):
            return
        first = block.first
        self.failures.append(
            Failure(
                first.number, block.last, block.at, block.type, "\n".join(block.message).strip(), first.source,
                first.rank, first.host, first.pid, first.role, tuple(block.frames),
                self.previous if block.chained else None, block.ignored,
                "\n".join(block.text),
            )
        )  # fmt: skip
        self.previous = len(self.failures) - 1


def tracebacks(lines: Iterable[Line]) -> list[Failure]:
    """Every exception, in the order of its first line; processes are kept apart."""
    failures: list[Failure] = []
    tellers: dict[object, Teller] = {}
    for line in lines:
        key = (line.source, line.rank, line.pid, line.role)
        teller = tellers.get(key)
        if teller is None:
            teller = tellers[key] = Teller(failures)
        teller.hear(line)
    for teller in tellers.values():
        teller._close()
    return _ordered(failures)


def _ordered(failures: list[Failure]) -> list[Failure]:
    order = sorted(range(len(failures)), key=lambda i: (failures[i].source, failures[i].number))
    place = {old: new for new, old in enumerate(order)}
    moved = [failures[i] for i in order]
    return [
        failure if failure.after is None else failure.but(after=place[failure.after]) for failure in moved
    ]
