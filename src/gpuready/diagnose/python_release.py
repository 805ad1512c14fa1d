"""An error that says that Python itself is too old or too new: a name of the standard library that came or went with a release."""

from __future__ import annotations

from collections.abc import Iterator

from gpuready.diagnose.version_conflict import SymbolTable
from gpuready.logs.lazy_regex import LazyRegex
from gpuready.logs.logged_exception import LoggedException
from gpuready.model.record import Record

PLAIN_MODULES = frozenset(("parser", "symbol", "formatter", "chunk", "pipes", "commands", "compression"))
"""Modules of such plain names that a missing one may be the user's own."""


PYTHON_VERSION = "python-version-unsupported"

_MODULE = LazyRegex(r"No module named ['\"]?(\w{1,60}(?:\.\w{1,60}){0,4})\b")
_IMPORT = LazyRegex(r"cannot import name ['\"]?(\w{1,80})['\"]?(?: from ['\"]?(\w[\w.]{0,80}\w))?")
_ATTRIBUTE = LazyRegex(r"module ['\"]?(\w[\w.]{0,80})['\"]? has no attribute ['\"]?(\w{1,80})")
_MEMBER = LazyRegex(r"'(?:\w{1,40}\.)?(\w{1,40})' (?:object )?has no attribute '(\w{1,80})'")
_UNDEFINED = LazyRegex(r"name '(\w{1,80})' is not defined")
_FROM = LazyRegex(r"from ([A-Za-z_][\w.]{0,80}) import ")
_VERSION = LazyRegex(r"[/\\][Pp]ython(3)\.?(\d{1,2})t?[/\\]|[/\\]cpython-(3)\.(\d{1,2})[.-]")


class PythonRelease(Record):
    """A name that this Python does not have: where it is used, and the release that it came with or left in."""

    symbol: str
    came: str = ""
    gone: str = ""
    have: str = ""  # the Python of the paths in the traceback

    @property
    def captures(self) -> dict[str, str]:
        wanted = f"Python {self.came} or newer" if self.came else f"a Python before {self.gone}"
        known = {"symbol": self.symbol, "want": wanted, "have": self.have}
        return {key: value for key, value in known.items() if value}


def find_python_release(failure: LoggedException, find_spans: SymbolTable) -> PythonRelease | None:
    """The release of Python that an error asks for; None where its name is none of the standard library, or was there."""
    have = _find_python(failure)
    for name in _missing_names(failure):
        span = next(iter(find_spans("python", name)), None)
        if span is None or (name in PLAIN_MODULES and not have):
            continue
        came, gone = span["came"], span["gone"]
        at = _parse_release(came or gone)
        if have and (_parse_release(have) >= at if came else _parse_release(have) < at):
            return None
        return PythonRelease(name.replace(":", "."), came, gone, have)
    return None


def _missing_names(failure: LoggedException) -> Iterator[str]:
    """The names that an error may mean, as the table has them."""
    text = failure.message[:600]
    if match := _MODULE.search(text):
        parts = match[1].split(".")
        yield from (".".join(parts[:n]) for n in range(len(parts), 0, -1))
    elif match := _IMPORT.search(text):
        module = match[2] or _imported_module(failure)
        yield from (f"{module}:{match[1]}", f"{module}.{match[1]}")
    elif match := _ATTRIBUTE.search(text):
        yield from (f"{match[1]}:{match[2]}", f"{match[1]}.{match[2]}")
    elif match := _MEMBER.search(text):
        yield f"{match[1]}.{match[2]}"
    elif match := _UNDEFINED.search(text):
        yield f"builtins:{match[1]}"


def _imported_module(failure: LoggedException) -> str:
    """``from contextlib import nullcontext``: Python before 3.7 does not name the module in its message."""
    code = failure.frames[-1].code if failure.frames else ""
    match = _FROM.match(code)
    return match[1] if match else ""


def _find_python(failure: LoggedException) -> str:
    """The version in the path of the innermost frame that has one: ``/usr/lib/python3.6/``, ``Python311``."""
    for path in (*(frame.file for frame in reversed(failure.frames)), failure.message[:600]):
        if match := _VERSION.search(path):
            return ".".join(group for group in match.groups() if group)
    return ""


def _parse_release(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split(".")))
