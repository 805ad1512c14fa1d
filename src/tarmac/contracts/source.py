"""Contract files as people write them: TOML, checked, with ``extends`` resolved into plain data.

The format is documented in docs/reference/contract-format.md. A file is text from anyone: it is measured
before it is parsed, and nothing in it is ever executed or expanded.
"""

from __future__ import annotations

import os
import re

from tarmac.contracts import BadContract

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LARGEST = 1 << 20
DEEPEST = 8
TABLES = ("needs", "capabilities", "variables", "errors", "steps")
_HERE = os.path.dirname(os.path.abspath(__file__))
_QUOTED = r'"""[\s\S]*?"""|\'\'\'[\s\S]*?\'\'\'|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|#[^\n]*'


def contract_data(path: str) -> dict[str, Any]:
    """The full contract in a file, as plain data; BadContract names every problem that it has."""
    return _plain(_whole(path, ()))


def _whole(path: str, seen: tuple[str, ...]) -> dict[str, Any]:
    """A file, checked, on top of the one that it ``extends``, which is checked as well."""
    from tarmac.contracts.validate import problems

    own, name = toml_data(path), os.path.basename(path)
    wrong = problems(own, name)
    if wrong:
        raise BadContract("\n".join(wrong))
    parent = own.get("extends")
    if not parent:
        return own
    if parent in seen:
        raise BadContract(f"{name} extends {parent!r}, which extends it again")
    return extended(_whole(_parent(parent, path, name), (*seen, parent)), own)


def toml_data(path: str) -> dict[str, Any]:
    """A TOML file as plain data; BadContract where it is not readable, not sane or not TOML."""
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
        raise BadContract(f"{name} is not TOML: {_one_line(error)}") from None
    return data


def extended(base: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    """A contract on top of another: rows are added, and replace those on the same subject."""
    both = {**base, **{k: v for k, v in own.items() if k not in TABLES}}
    for table in TABLES:
        both[table] = _together(table, base.get(table, []), own.get(table, []))
    both["notes"] = [*base.get("notes", []), *own.get("notes", [])]
    return both


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
    except OSError as error:
        raise BadContract(f"{name} cannot be read: {error.strerror or error}") from None


def _measured(text: str, name: str) -> None:
    """Refuse what costs the parser more than its size: dotted keys without end, brackets in brackets."""
    bare = re.sub(_QUOTED, lambda m: "" if m[0][0] == "#" else "s", text)
    if re.search(rf"(?:[\w-]+[ \t]*\.[ \t]*){{{DEEPEST}}}", bare):
        raise BadContract(f"{name} has a key of more than {DEEPEST} parts, which no contract has")
    depth = 0
    for mark in re.findall(r"[\[\]{}]", bare):
        depth += 1 if mark in "[{" else -1
        if depth > DEEPEST:
            raise BadContract(f"{name} is nested more than {DEEPEST} deep, which no contract is")


def _one_line(error: ValueError) -> str:
    return re.sub(r"\s+", " ", str(error)).replace("(at line", "(line").strip()


def _parent(parent: str, path: str, name: str) -> str:
    for folder in (os.path.dirname(os.path.abspath(path)), _HERE):
        found = os.path.join(folder, f"{parent}.toml")
        if os.path.isfile(found):
            return found
    raise BadContract(f"{name} extends {parent!r}, and no {parent}.toml is beside it or shipped with tarmac")


def _together(table: str, base: list[Any], own: list[Any]) -> list[Any]:
    mine = {_subject(table, row) for row in own}
    return [row for row in base if _subject(table, row) not in mine] + own


def _subject(table: str, row: dict[str, Any]) -> tuple[object, ...]:
    """What a row is about; a row of a variant replaces the row of its base on the same subject."""
    fields = {
        "needs": ("key", "when", "level"),
        "capabilities": ("name",),
        "variables": ("name", "when"),
        "errors": ("message",),
        "steps": ("does",),
    }[table]
    return tuple(row.get(field, "") for field in fields)


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    """The data with every table there, and without what only the file itself needed."""
    full = {key: value for key, value in data.items() if key != "extends"}
    for table in TABLES:
        full.setdefault(table, [])
    return full
