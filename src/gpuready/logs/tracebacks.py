"""Reassemble tracebacks, one process at a time, with their messages and causes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from gpuready.logs.lazy_regex import LazyRegex
from gpuready.logs.log_lines import LogLine
from gpuready.logs.logged_exception import LoggedException, StackFrame, link_exceptions
from gpuready.logs.native_errors import continues_native_error, parse_native_error, parse_typeless_error
from gpuready.logs.run_activity import is_progress_line, says_handled

MAX_MESSAGE_LINES, MAX_LINKED = 40, 4000
"""Maximum number of lines of a message, and of characters in which links are replaced."""

MAX_AFTER_CUT = 4
"""Lines after the innermost frame of a traceback that is cut; where more follow, the run goes on."""

_ARROW = LazyRegex(r"(?:-{2,4}> |❱ |│ ❱ )\s{0,4}\d{1,6} ")
"""The line of code at fault, among those that IPython and rich show around it."""


_FILE = LazyRegex(r'\s*File "([^"]{1,400})", line (\d{1,7})(?:, in ([^\n]{1,200}))?')
_CELL = LazyRegex(
    r"\s*(?:File )([^\s,]{1,300}?)(?::| line )(\d{1,7}), in ([^\n(]{1,120})|\s*Cell (In ?\[\d{1,6}\]),? line (\d{1,7})(?:, in ([^\n(]{1,120}))?"
    r"|\s*File ([^\s,\"]{1,300}\.py):(\d{1,7})\s{0,4}$"
    r"|([^\s:]{1,300}\.py):(\d{1,7}): in ([\w<>.]{1,120})\s{0,4}$"
    r"|((?:[A-Za-z]:)?[^\s:]{1,300}\.py):(\d{1,7}) in(?: ([\w<>.]{1,120}))?\s{0,90}$"
    r"|\s*(<ipython-input-[\w-]{1,60}>|(?:[~.\w-]{0,80}/)[\w./@+-]{1,300}\.pyc?) in ([<\w>.]{1,120})\(?"
)
_TYPE = LazyRegex(
    r"\s*[(*\u201c]{0,2}([A-Za-z_][\w.]{0,120}?(?:Error|Exception|Interrupt|Exit|Timeout|Fault|NotFound|Failed|ExceptionGroup)(?:\([\w.]{1,60}\))?|Exception)(?:: ?|$)"
)
_ANY_TYPE = LazyRegex(
    r"((?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{2,60}|(?:[A-Za-z_]\w{0,60}\.){1,8}[a-z_]\w{2,60})(?:\([\w.]{1,60}\))?(?:: ?|$)"
)
_MID_LINE = LazyRegex(r"(?<=[\s\])>])((?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{2,60}(?:Error|Exception|Interrupt)): ?(?=\S)")
_CODE_WORDS = LazyRegex(
    r"\b(?:except|raise|import|catch|caught|ignor\w{0,3}|such as|like|see|avoid|with|if|when|or|of|a|an)\s$|[\"'`(,=]$"
)
_LINK = LazyRegex(r"\[([^\[\]\n]{1,300})\]\([a-z-]{2,20}:[^()\[\s]{0,300}\)")
"""What notebooks make of a path or a line number: ``[/x/trainer.py](https://localhost:8080/#) in train(self)``."""
_MARGIN = LazyRegex(r"\s*(?:\| |\+ (?=Exception Group Traceback)|\|$)")
_MEMBER = LazyRegex(r"\s*\+-[+-]{3,80} (?:\d{1,5}|\.\.\.) -{3,80}|\s*\+-{8,80}")
_CHAIN = {
    "The above exception was the direct cause of": "cause", "During handling of the above exception": "context",
    "the direct cause of the following exception": "cause",
}  # fmt: skip
_TORN = LazyRegex(r"([A-Z]\w{0,60}(?:Error|Exception))$")
"""A type whose message is on the next line: several processes wrote at once."""
_HEAD = "Traceback (most recent call last)"
_IGNORED = ("Exception ignored in", "Error in atexit", "Error in sys.excepthook")


class _OpenTraceback:
    """A traceback that is not complete yet."""

    def __init__(self, line: LogLine, link: str, ignored: bool, before: LogLine | None):
        self.first = line
        self.link, self.ignored = link, ignored
        self.frames: list[StackFrame] = []
        self.text: list[str] = []
        self.type, self.message, self.at, self.last = "", [""], line.number, line.number
        self.logged = bool(line.level)
        self.native = False
        introduces = before is not None and before.level in ("E", "W", "C") and line.number - before.number <= 1
        self.level = line.level or (before.level if before is not None and introduces else "")
        self.handled = before is not None and line.number - before.number <= 1 and says_handled(before.text)
        self.indent = -1  # of the frames
        self.logged_error = parse_typeless_error(before, True) if before is not None and before.level == "E" else None


class TracebackReader:
    """Follows one process, line by line."""

    def __init__(self, failures: list[LoggedException]):
        self.failures = failures
        self.open: _OpenTraceback | None = None
        self.link, self.ignored = "", False
        self.previous: int | None = None
        self.before: LogLine | None = None  # the line before this one

    def read_line(self, line: LogLine) -> None:
        text = line.text
        if "](" in text[:MAX_LINKED]:
            line = line.replace(text=_LINK.sub(r"\1", text[:MAX_LINKED]) + text[MAX_LINKED:])
            text = line.text
        if text[:1] in " +|" and (margin := _MARGIN.match(text)) and (self.open is not None or "+" in margin[0]):
            line = line.replace(text=text[margin.end() :])  # an exception group
            text = line.text
        torn = _TORN.search(self.before.text[-80:]) if text.startswith(": ") and self.before is not None else None
        if torn and (self.open is None or not self.open.type):
            line = line.replace(text=torn[1] + text)
            text = line.text
        self._read_text(line, text)
        if text.strip():
            self.before = line

    def _read_text(self, line: LogLine, text: str) -> None:
        if _HEAD in text:
            self._begin_traceback(line)
        elif link := next((kind for mark, kind in _CHAIN.items() if mark in text), ""):
            self._close_traceback()
            self.link = link
        elif text.lstrip().startswith(_IGNORED):
            self._close_traceback()
            self.ignored = True
        elif match := _FILE.match(text) or _CELL.match(text):
            file, number, function = parse_frame(match)
            self._add_frame(line, StackFrame(file, number, function))
        elif self.open is not None and _MEMBER.match(text):
            self._close_traceback()
        elif (native := parse_native_error(text)) is not None and not self._is_inside_message(line):
            self._begin_native_error(line, *native)
        elif self.open is not None:
            self._continue_traceback(line)
        elif match := _match_bare_exception(line):
            self._begin_bare_exception(line, match)

    def _is_inside_message(self, line: LogLine) -> bool:
        """Whether a message of several lines is open, to which a compiler's error may belong."""
        block = self.open
        return block is not None and bool(block.type) and not block.native and self._belongs_to_message(line, block)

    def _begin_traceback(self, line: LogLine) -> None:
        if self.open is not None and not self.open.type and not self.open.frames:
            return  # the same header twice: once by the logger, once by Python
        self._close_traceback()
        self._open_block(line)

    def _open_block(self, line: LogLine) -> _OpenTraceback:
        self.open = _OpenTraceback(line, self.link, self.ignored, self.before)
        self.link, self.ignored = "", False
        return self.open

    def _add_frame(self, line: LogLine, frame: StackFrame) -> None:
        block = self.open
        if block is None or block.type:
            self._close_traceback()
            block = self._open_block(line)
        block.frames.append(frame)
        block.indent = len(line.text) - len(line.text.lstrip())
        block.text.append(line.folded_text)
        block.last = line.number

    def _begin_native_error(self, line: LogLine, kind: str, message: str) -> None:
        self._close_traceback()
        block = self._open_block(line)
        block.type, block.message, block.native = kind, [message], True
        block.text.append(line.folded_text)

    def _continue_traceback(self, line: LogLine) -> None:
        block = self.open
        assert block is not None
        text = line.text
        if not block.type:
            match = _match_final_type(text, block)
            if match:
                block.type = text[match.start(1) : match.end()].rstrip(": ")
                block.at, block.message = line.number, [text[match.end() :].strip()]
            elif typeless := self._parse_typeless_end(line, block):
                block.type, block.at, block.message = typeless[0], line.number, [typeless[1]]
            elif block.frames and text.strip() and (arrow := _ARROW.match(text)):
                block.frames[-1] = block.frames[-1].replace(code=text[arrow.end() :].strip("│ "))
            elif block.frames and not block.frames[-1].code and text.strip():
                block.frames[-1] = block.frames[-1].replace(code=line.folded_text)
            elif not text.strip() and self._is_too_far(line, block):
                return
        elif not self._belongs_to_message(line, block):
            self._close_traceback()
            if match := _match_bare_exception(line):
                self._begin_bare_exception(line, match)
            return
        else:
            block.message.append(text.strip())
        block.text.append(line.folded_text)
        block.last = line.number

    @staticmethod
    def _parse_typeless_end(line: LogLine, block: _OpenTraceback) -> tuple[str, str] | None:
        """Type and message of the last line of a traceback whose type is missing."""
        is_end = bool(block.frames) and bool(block.frames[-1].code) and not line.text.startswith((" ", "\t"))
        return parse_typeless_error(line, False) if is_end else None

    def _belongs_to_message(self, line: LogLine, block: _OpenTraceback) -> bool:
        """Whether a line still belongs to the message."""
        if (
            len(block.message) >= MAX_MESSAGE_LINES
            or self._is_too_far(line, block)
            or line.place in ("launcher", "kernel")
            or is_progress_line(line)
        ):
            return False
        if block.native and block.message[0]:
            return continues_native_error(line.text)
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
        block = self._open_block(line)
        block.type, block.message = match[1], [line.text[match.end() :].strip()]
        block.text.append(line.folded_text)

    def _close_traceback(self) -> None:
        block, self.open = self.open, None
        if block is None or not (block.type or block.frames):
            return
        first = block.first
        if not block.type and block.logged_error is not None:  # a logger wrote the message before the traceback
            block.type, block.message = block.logged_error[0], [block.logged_error[1]]
        self.failures.append(
            LoggedException(
                first.number, block.last, block.at, block.type, "\n".join(block.message).strip(), first.source,
                first.rank, first.host, first.pid, first.role, tuple(block.frames),
                self.previous if block.link else None, block.ignored,
                "\n".join(block.text), block.level, block.handled, link=block.link if self.previous is not None else "",
            )
        )  # fmt: skip
        self.previous = len(self.failures) - 1


def is_cut_line(failure: LoggedException, line: LogLine) -> bool:
    """Whether a line is of the innermost frame of a traceback whose error is missing."""
    if failure.type or not failure.frames or failure.last - line.number > MAX_AFTER_CUT:
        return False
    frame, text = failure.frames[-1], line.folded_text
    return text == frame.code or (bool(frame.function) and frame.file in text and f"line {frame.line}" in text)


def parse_frame(match: re.Match[str]) -> tuple[str, int, str]:
    """File, line and function of a frame, in the form of Python or of a notebook."""
    groups = [group for group in match.groups() if group]
    if len(groups) == 2 and not groups[1].isdecimal():
        return groups[0], 0, groups[1].strip()
    return groups[0], int(groups[1]), groups[2].strip() if len(groups) > 2 else ""


def _match_final_type(text: str, block: _OpenTraceback) -> re.Match[str] | None:
    """The line of the type and the message, after the frames."""
    indent = len(text) - len(text.lstrip())
    if match := _TYPE.match(text):
        return match
    match = _ANY_TYPE.match(text, indent) if indent < max(block.indent, 1) else None
    sure = match is not None and (": " in text[: match.end()] or (block.indent > indent and "." in match[1]))
    return match if sure else None


def _match_bare_exception(line: LogLine) -> re.Match[str] | None:
    """An exception without a traceback: at the beginning of a line, or after what a program printed there."""
    text = line.text
    match = _TYPE.match(text)
    if match and (not text.startswith((" ", "\t")) or ": " in text[: match.end()]):
        return match
    if line.level in ("W", "I", "D") or line.place or len(text) > 2000:
        return None
    match = (
        _MID_LINE.search(text[:600]) if "Error: " in text or "Exception: " in text or "Interrupt: " in text else None
    )
    return match if match and not _CODE_WORDS.search(text[: match.start()]) else None


def find_tracebacks(lines: Sequence[LogLine]) -> list[LoggedException]:
    """Every exception, in the order of its first line. Processes are kept apart."""
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
    return link_exceptions(
        [failure if failure.after is None else failure.replace(after=place[failure.after]) for failure in moved]
    )
