"""Read TOML files as plain data. Files are untrusted: their size and nesting are checked before parsing."""

from __future__ import annotations

import os
import re

from gpuready.contracts.faults import BadContract

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LARGEST = 1 << 20
DEEPEST = 8
DIGITS = 1000
TABLES = ("needs", "capabilities", "variables", "errors", "steps")
_QUOTED = r'"""[\s\S]*?"""|\'\'\'[\s\S]*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*'


def toml_data(path: str) -> dict[str, Any]:
    """Read a TOML file; BadContract where it is unreadable, too complex or not TOML."""
    name = os.path.basename(path)
    text = _text(path, name)
    _measured(text, name)
    import sys
    from importlib import import_module

    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        data: dict[str, Any] = toml.loads(text)
    except RecursionError:
        raise BadContract(f"{name} is nested too deeply to be a contract") from None
    except ValueError as error:
        raise BadContract(f"{name} is not TOML: {_one_line(error, text)}") from None
    return data


def _text(path: str, name: str) -> str:
    raw = _bytes(path, name)
    if len(raw) > LARGEST:
        raise BadContract(f"{name} is larger than 1 MiB, which no contract is")
    if raw.startswith(b"\xef\xbb\xbf"):
        raise BadContract(f"{name} begins with a byte order mark: save it as UTF-8 without one")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise BadContract(f"{name} line {line} is not UTF-8: save the file as UTF-8") from None


def _bytes(path: str, name: str) -> bytes:
    if "\0" in path:
        raise BadContract(f"{name!r} is not the name of a file")
    if os.path.exists(path) and not os.path.isfile(path):
        raise BadContract(f"{name} is not a file: name a contract in TOML")
    try:
        with open(path, "rb") as stream:
            return stream.read(LARGEST + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise BadContract(
            f"{path} does not exist: name a contract in TOML, or a framework such as trl"
        ) from None
    except OSError as error:
        raise BadContract(f"{name} cannot be read: {error.strerror or error}") from None


def _measured(text: str, name: str) -> None:
    """Reject input that is expensive to parse for its size: long dotted keys, deep nesting."""
    if re.search(rf"[0-9]{{{DIGITS}}}", text):
        raise BadContract(f"{name} has a number of more than {DIGITS} digits, which no contract has")
    bare = re.sub(_QUOTED, lambda m: "" if m[0][0] == "#" else "s", text)
    if re.search(rf"(?<![\w-])(?:[\w-]+[ \t]*\.[ \t]*){{{DEEPEST}}}", bare):
        raise BadContract(f"{name} has a key of more than {DEEPEST} parts, which no contract has")
    depth = 0
    for mark in re.findall(r"[\[\]{}]", bare):
        depth += 1 if mark in "[{" else -1
        if depth > DEEPEST:
            raise BadContract(f"{name} is nested more than {DEEPEST} deep, which no contract is")


def _one_line(error: ValueError, text: str) -> str:
    """Return the parser's message, always with a line: at the end of a document it names none."""
    end = f"(line {max(1, len(text.splitlines()))}, at the end of the file)"
    said = re.sub(r"\s+", " ", str(error)).replace("(at line", "(line").strip()
    return said.replace("(at end of document)", end)
