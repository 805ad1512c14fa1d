"""Read TOML files as plain data, with the errors of contracts. Files are untrusted: their size and nesting are checked before parsing."""

import os
import re
import sys
from importlib import import_module
from typing import Any


class UnknownContract(ValueError):
    """No contract has that name; the message is one sentence with the nearest names."""


class BadContract(ValueError):
    """A contract file that cannot be used; the message has one sentence per problem, on one line."""


MAX_TOML_BYTES = 1 << 20
MAX_DEPTH = 8
MAX_DIGITS = 1000
TABLES = ("needs", "capabilities", "variables", "errors", "steps")
_QUOTED = r'"""[\s\S]*?"""|\'\'\'[\s\S]*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*'


def read_toml(path: str) -> dict[str, Any]:
    """Read a TOML file; BadContract where it is unreadable, too complex or not TOML."""
    name = os.path.basename(path)
    return decode_toml(_read_utf8(path, name), name)


def decode_toml(text: str, name: str, kind: str = "contract") -> dict[str, Any]:
    """Decode the text of a TOML file of a kind; BadContract where it is too complex or not TOML."""
    _check_complexity(text, name, kind)
    toml = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        data: dict[str, Any] = toml.loads(text)
    except RecursionError:
        raise BadContract(f"{name} is nested too deeply to be a {kind}") from None
    except ValueError as error:
        raise BadContract(f"{name} is not TOML: {_parser_message(error, text)}") from None
    return data


def _read_utf8(path: str, name: str) -> str:
    raw = _read_toml_bytes(path, name)
    if len(raw) > MAX_TOML_BYTES:
        raise BadContract(f"{name} is larger than 1 MiB, which no file of requirements is")
    if raw.startswith(b"\xef\xbb\xbf"):
        raise BadContract(f"{name} begins with a byte order mark: save it as UTF-8 without one")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise BadContract(f"{name} line {line} is not UTF-8: save the file as UTF-8") from None


def _read_toml_bytes(path: str, name: str) -> bytes:
    if "\0" in path:
        raise BadContract(f"{name!r} is not the name of a file")
    if os.path.exists(path) and not os.path.isfile(path):
        raise BadContract(f"{name} is not a file: name a file of requirements (TOML)")
    try:
        with open(path, "rb") as stream:
            return stream.read(MAX_TOML_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        raise BadContract(
            f"{path} does not exist: name a file of requirements (TOML), or a framework such as trl"
        ) from None
    except OSError as error:
        raise BadContract(f"{name} cannot be read: {error.strerror or error}") from None


def _check_complexity(text: str, name: str, kind: str) -> None:
    """Reject input that is expensive to parse for its size: long dotted keys, deep nesting."""
    if re.search(rf"[0-9]{{{MAX_DIGITS}}}", text):
        raise BadContract(f"{name} has a number of more than {MAX_DIGITS} digits, which no {kind} has")
    bare = re.sub(_QUOTED, lambda m: "" if m[0][0] == "#" else "s", text)
    if re.search(rf"(?<![\w-])(?:[\w-]+[ \t]*\.[ \t]*){{{MAX_DEPTH}}}", bare):
        raise BadContract(f"{name} has a key of more than {MAX_DEPTH} parts, which no {kind} has")
    depth = 0
    for mark in re.findall(r"[\[\]{}]", bare):
        depth += 1 if mark in "[{" else -1
        if depth > MAX_DEPTH:
            raise BadContract(f"{name} is nested more than {MAX_DEPTH} deep, which no {kind} is")


def _parser_message(error: ValueError, text: str) -> str:
    """Return the parser's message, always with a line: at the end of a document it names none."""
    end = f"(line {max(1, len(text.splitlines()))}, at the end of the file)"
    message = re.sub(r"\s+", " ", str(error)).replace("(at line", "(line").strip()
    return message.replace("(at end of document)", end)
