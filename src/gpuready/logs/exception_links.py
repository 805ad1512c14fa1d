"""Which of several exceptions tells the reason: what only wraps an import, what was handled, and what an earlier attempt ended by."""

from __future__ import annotations

from collections.abc import Iterator

from gpuready.logs.lazy_regex import LazyRegex
from gpuready.logs.logged_exception import LoggedException

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
