"""Undo what a transport did to the lines of a log: JSON around them, newlines written as \\n, a fixed width."""

import json
import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from gpuready.logs.lazy_regex import LazyRegex

Row = tuple[int, str, dict[str, Any]]
"""Number of the line, its text, and the fields that were stated about it."""

SAMPLE_LINES, MAX_ALIKE, MAX_SHAPE, MAX_PARTS, MAX_JOINED = 400, 8, 200, 200, 8192
"""Lines by which the form is judged, how many of them are alike in how many characters, lines that one may become, and
characters of a joined line."""


def undo_line_forms(visible: Sequence[tuple[int, str]]) -> list[Row]:
    """The lines as their program wrote them."""
    rows: list[Row] = [(number, text, {}) for number, text in visible]
    rows = [part for row in rows for part in (_parse_json_line(*row) if '{"' in row[1][:40] else (row,))]
    if width := find_wrap_width(sample_lines([text for _, text, _ in rows])):
        rows = _join_wrapped(rows, width)
    rows = [(number, _undo_quotes(text), fields) for number, text, fields in rows]
    return [part for row in rows for part in (_split_collapsed(row) if "Traceback (most" in row[1] else (row,))]


_VARIES = dict.fromkeys(map(ord, "0123456789#█▏▎▍▌▋▊▉━╸ "))


def sample_lines(texts: Sequence[str]) -> list[str]:
    """The last lines by which a form is judged, eight of each shape: how often a line of training repeats decides nothing."""
    counts: dict[str, int] = {}
    kept: list[str] = []
    for text in reversed(texts):
        shape = text[:MAX_SHAPE].translate(_VARIES)
        counts[shape] = counts.get(shape, 0) + 1
        if counts[shape] <= MAX_ALIKE:
            kept.append(text)
        if len(kept) == SAMPLE_LINES:
            break
    return kept[::-1]


_CURLY = str.maketrans("‘’“”", "''\"\"")


def _undo_quotes(text: str) -> str:
    """``File \\"x.py\\", line 3`` from a string that was quoted, and the curly quotes of compilers and of web pages."""
    if not text.isascii():
        text = text.translate(_CURLY)
    return text.replace('\\"', '"') if 'File \\"' in text else text


# -- JSON -------------------------------------------------------------------------------------------------

_MESSAGE_KEYS = (
    "message", "msg", "log", "text", "event", "body", "line", "content", "textPayload", "short_message", "@message",
    "MESSAGE", "data",
)  # fmt: skip
_STACK_KEYS = (
    "exc_info", "exception", "exc_text", "stack_trace", "traceback", "stack", "error.stack_trace", "stacktrace",
)  # fmt: skip
_LEVEL_KEYS = ("level", "levelname", "severity", "lvl", "log.level", "loglevel")
_RANK_KEYS = ("rank", "global_rank", "global-rank", "RANK")
_HOST_KEYS = ("host", "hostname", "node", "node_name", "pod", "pod_name", "_HOSTNAME", "host.name", "instance")
_PID_KEYS = ("pid", "process", "process_id", "_PID")


def _load_object(text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _find_message(row: dict[str, Any]) -> str | None:
    """The first text of several words, else the first text: ``{"event": "line", "data": "loading the model"}``."""
    texts = [row[key] for key in _MESSAGE_KEYS if isinstance(row.get(key), str)]
    return next((text for text in texts if " " in text.strip()), texts[0] if texts else None)


def _parse_json_line(number: int, text: str, fields: dict[str, Any]) -> Iterator[Row]:
    row = _load_object(text.strip()) if text.lstrip().startswith("{") else {}
    message = _find_message(row)
    if message is None:
        yield number, text, fields
        return
    kind = row.get("type")
    if isinstance(kind, str) and kind.endswith(("Error", "Exception")) and " " not in kind:
        message = f"{kind}: {message}"
    stack = next((row[key] for key in _STACK_KEYS if isinstance(row.get(key), str)), "")
    known = _read_fields(row)
    for part in f"{message.rstrip()}\n{stack}".rstrip().split("\n")[:MAX_PARTS]:
        yield number, part, known


def _read_fields(row: dict[str, Any]) -> dict[str, Any]:
    """Level, rank, host and process of a JSON line, under the names that loggers give them."""
    fields: dict[str, Any] = {}
    level = next((row[key] for key in _LEVEL_KEYS if isinstance(row.get(key), str)), "")
    if level[:1].upper() in ("E", "W", "I", "D", "C", "F"):
        fields["level"] = level[0].upper()
    for name, keys in (("rank", _RANK_KEYS), ("pid", _PID_KEYS)):
        value = next((str(row[key]) for key in keys if isinstance(row.get(key), (str, int))), "")
        if value.isdecimal() and len(value) < 10:
            fields[name] = int(value)
    if host := next((row[key] for key in _HOST_KEYS if isinstance(row.get(key), str)), ""):
        fields["host"] = host[:100]
    return fields


# -- width ------------------------------------------------------------------------------------------------

MIN_WIDTH, MAX_WIDTH = 40, 300
_DIGITS = str.maketrans("123456789", "000000000")
_FRAMED = ("|", "+", "-", "=", "*", "#", "│", "━", "─", "╮", "╯", "~", "_")
_BEGINS = LazyRegex(
    r"\s{0,8}(?:\[|\(\w|\d{4}-\d\d|\d\d:\d\d|Traceback|File \"|[EWIF]\d{4} |DEBUG|INFO|WARN|ERROR|Exception|During handling|The above|>|\+ |\$ |[\w.]{1,60}Error: )"
)
_OPEN_FRAME = LazyRegex(r'.{0,120}File "[^"]{1,300}(?:",? ?l?i?n?e?)?$')


def find_wrap_width(sample: Sequence[str]) -> int:
    """The width at which every longer line was broken, or 0: several different lines end there, none later, and what follows begins nothing."""
    width = max((len(text) for text in sample), default=0)
    if not MIN_WIDTH <= width <= MAX_WIDTH:
        return 0
    full = [i for i, text in enumerate(sample[:-1]) if len(text) == width and not text.rstrip().endswith(_FRAMED)]
    shapes = {sample[i].translate(_DIGITS) for i in full}
    begun = sum(bool(_BEGINS.match(sample[i + 1])) or _begins_alike(sample[i], sample[i + 1]) for i in full)
    is_torn = any(_OPEN_FRAME.match(sample[i]) for i in full)
    pairs = pairwise(sample)  # of prose that was broken between words, shorter lines go on too
    is_prose = any(0.6 * width < len(a) < width and a[-1].isalnum() and b[:1].islower() for a, b in pairs)
    return width if (len(shapes) >= 3 or is_torn) and begun * 4 <= len(full) and not is_prose else 0


def _begins_alike(text: str, after: str) -> bool:
    """Whether two lines begin with the same word: both are lines of their own, of one length by chance."""
    word = text.split(" ", 1)[0]
    return (len(word) > 2 or not word[:1].isalnum()) and bool(word) and after.startswith(f"{word} ")


def _join_wrapped(rows: Sequence[Row], width: int) -> list[Row]:
    joined: list[Row] = []
    is_open = False
    for number, text, fields in rows:
        if is_open and len(joined[-1][1]) < MAX_JOINED:
            joined[-1] = joined[-1][0], joined[-1][1] + text, joined[-1][2]
        else:
            joined.append((number, text, fields))
        is_open = len(text) == width
    return joined


# -- tracebacks in one line -------------------------------------------------------------------------------------

_FRAME = LazyRegex(r'(?:\\n|(?<=\S)) {1,8}(?=File "[^"]{0,400}", line \d{1,7})')
_LAST = LazyRegex(
    r"(?:\\n {0,4}|(?<=\S) {1,4}|(?<=[^\w\s.]))(?=(?:[A-Za-z_]\w{0,60}\.){0,8}[A-Z]\w{1,60}(?:Error|Exception|Interrupt|Exit): )"
)
_FUNCTION = LazyRegex(r'(File "[^"]{0,400}", line \d{1,7}, in )(<\w{1,20}>|[A-Za-z_][\w.]{0,80}) (?=\S)')
_STATEMENTS = (
    "from", "import", "return", "raise", "assert", "with", "if", "for", "class", "def", "await", "del", "exec",
)  # fmt: skip
"""Words that begin a line of code: no function has such a name, and a web page ate the ``<module>`` before it."""

_NOTEBOOK = LazyRegex(
    r" {1,60}(?=-{2,4}> ?\d{1,6} |<ipython-input-[\w-]{1,60}> in |[~.\w-]{0,80}/[\w./@+-]{1,300}\.py in [<\w]|File [^\s,\"]{1,300}:\d{1,7}, in "
    r"|(?:Cell |Input )In ?\[\d{1,6}\]|The above exception |During handling of |[A-Z]\w{1,60}(?:Error|Exception) {1,60}Traceback \(most recent)"
)
"""Where the lines of a notebook's traceback began: ``KeyError Traceback (most recent call last) <ipython-input-1> in <module> ----> 1 x[2]``."""


def _split_collapsed(row: Row) -> list[Row]:
    """A traceback whose newlines were written as ``\\n`` or lost."""
    number, text, fields = row
    if "\\n" in text:
        parts = text.replace('\\"', '"').split("\\n")
    elif 'File "' in text.partition("Traceback (most recent call last)")[2]:
        head, mark, rest = text.partition("Traceback (most recent call last):")
        broken = _FRAME.compiled.sub("\n  ", " " + rest.strip())
        broken = _FUNCTION.compiled.sub(_part_code, broken)
        parts = [f"{head}{mark}", *_LAST.compiled.sub("\n", broken).split("\n")]
    elif _NOTEBOOK.search(text):
        parts = _LAST.compiled.sub("\n", _NOTEBOOK.compiled.sub("\n", text)).split("\n")
    else:
        return [row]
    return [(number, part, fields) for part in parts[:MAX_PARTS] if part.strip()]


def _part_code(match: re.Match[str]) -> str:
    """``File "x.py", line 3, in run loss.backward()``: the line of code on a line of its own."""
    if match[2] in _STATEMENTS:
        return f"{match[1]}<module>\n    {match[2]} "
    return f"{match[1]}{match[2]}\n    "
