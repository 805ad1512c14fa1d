"""Messages of Python's own exceptions without their type, and exceptions as ``repr`` shows them: how people quote them.

'ChatGLMTokenizer' object has no attribute 'tokenizer'
AttributeError("'tuple' object has no attribute 'hidden_states'")
"""

from __future__ import annotations

from gpuready.logs.lazy_regex import LazyRegex
from gpuready.logs.log_lines import LogLine

_FORMS = (
    ("has no attribute", "AttributeError", LazyRegex(r"(?:type object |module )?'[\w.]{1,120}' (?:object )?has no attribute '\w{1,80}'")),
    ("cannot import name", "ImportError", LazyRegex(r"cannot import name '\w{1,80}' from '[\w.]{1,120}'")),
    ("No module named", "ModuleNotFoundError", LazyRegex(r"No module named '[\w.]{1,120}'\W{0,4}$")),
    ("unexpected keyword argument", "TypeError", LazyRegex(r"(?:[\w.<>]{1,120}\(\) )?got (?:an )?unexpected keyword argument '\w{1,80}'")),
    ("No such file or directory", "FileNotFoundError", LazyRegex(r"(?:\[Errno 2\] )?No such file or directory: ?['\"][^'\"]{1,300}")),
    ("object is not", "TypeError", LazyRegex(r"'[\w.]{1,80}' object is not (?:subscriptable|callable|iterable|an iterator|a mapping)")),
    ("object does not support", "TypeError", LazyRegex(r"'[\w.]{1,80}' object does not support item (?:assignment|deletion)")),
    ("unsupported operand", "TypeError", LazyRegex(r"unsupported operand type\(s\) for [^:]{1,20}: '")),
    ("required positional", "TypeError", LazyRegex(r"[\w.<>]{1,120}\(\) missing \d{1,3} required positional argument")),
    ("index out of range", "IndexError", LazyRegex(r"(?:list|tuple|string) index out of range")),
    ("values to unpack", "ValueError", LazyRegex(r"(?:too many|not enough) values to unpack \(expected")),
    ("is not defined", "NameError", LazyRegex(r"name '\w{1,80}' is not defined\W{0,4}$")),
)  # fmt: skip
_REPR = LazyRegex(r"([A-Za-z_][\w.]{0,80}(?:Error|Exception))\(([\"'])(.{1,1000})\2,?\)\s{0,4}$")


def parse_typeless_error(line: LogLine, is_quoted: bool) -> tuple[str, str] | None:
    """Type and message of an exception that a line tells in such a form: as a whole, or anywhere where the log is but a quotation."""
    if line.level in ("W", "I", "D") or line.place:
        return None
    text = line.text[:1200].strip()
    for key, kind, form in _FORMS:
        found = (form.search(text) if is_quoted else form.match(text)) if key in text else None
        if found:
            return kind, text[found.start() :]
    is_shown = "Error(" in text or "Exception(" in text
    shown = (_REPR.search(text) if is_quoted else _REPR.match(text)) if is_shown else None
    return (shown[1], shown[3]) if shown else None


_STATED_TYPE = LazyRegex(
    r"^\W{0,8}([A-Z]\w{1,60}(?:Error|Exception|Interrupt)) {2,90}Traceback \(|Caught (\w{1,60}(?:Error|Exception)) in (?:DataLoader|replica|pin memory)|: (\w{1,60}(?:Error|Exception))$"
)
"""``KeyError      Traceback (most recent call last)``; ``Caught KeyError in DataLoader worker process 0.`` or ``loading: KeyError`` before one."""


def find_named_type(line: LogLine) -> str:
    """The type that the first line of a traceback names, or the line before it; empty where it names none."""
    found = _STATED_TYPE.search(line.text[:300])
    return str(found[1] or found[2] or found[3]) if found else ""
