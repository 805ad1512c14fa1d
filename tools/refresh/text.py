"""Rows of a TOML file as text: what is not touched stays as it is, with its comments and its order."""

import json
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

WIDTH = 130
HEADER = re.compile(r"^\[\[([\w.-]+)\]\]", re.M)
TRAIL = re.compile(r"(?:\n(?:#[^\n]*)?)*\Z")
Edit = Callable[[str], str]
NEW, TODO = "new", "to fill"


@dataclass(frozen=True)
class Change:
    """One row to add or to replace, or, without an edit, one to fill in by hand."""

    kind: str
    key: str
    says: str
    edit: Edit | None = None

    @property
    def file(self) -> str:
        return self.key.partition("/")[0]


def touched(key: str, only: list[str]) -> bool:
    """Whether a key lies under one of those that were asked for, or above it; asked for none, all are."""
    return not only or any(f"{key}/".startswith(o.rstrip("/") + "/") or f"{o}/".startswith(key + "/") for o in only)


def brief(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def loads(text: str) -> dict[str, Any]:
    """A TOML text as data; ValueError where it is none."""
    found: dict[str, Any] = tomllib.loads(text)
    return found


@dataclass(frozen=True)
class Row:
    """One table of a list: its name, its own values, and where its text is; comments above a header belong to it."""

    name: str
    values: dict[str, Any]
    start: int
    end: int


def list_rows(text: str) -> list[Row]:
    heads = [*HEADER.finditer(text)]
    ends = [*(head.start() for head in heads[1:]), len(text)][: len(heads)]
    bodies = [text[head.end() : end] for head, end in zip(heads, ends, strict=True)]
    return [
        Row(head[1], loads(body), head.start(), end - len((TRAIL.search(body) or [""])[0]))
        for head, body, end in zip(heads, bodies, ends, strict=True)
    ]


def insert_row(text: str, after: Callable[[Row], bool], rows: list[tuple[str, dict[str, Any]]]) -> str:
    """Put rows behind the last row of which ``after`` is true."""
    at = max(row.end for row in list_rows(text) if after(row))
    return text[:at] + "".join(f"\n\n{format_row(name, one)}" for name, one in rows) + text[at:]


def replace_row(text: str, name: str, key: str, row: dict[str, Any]) -> str:
    """Replace the row of that name and key, with all its values."""
    old = next(one for one in list_rows(text) if one.name == name and one.values[key] == row[key])
    return text[: old.start] + format_row(name, row) + text[old.end :]


def set_head(text: str, key: str, value: str) -> str:
    """Replace a value above all rows: ``as_of = "2026-11-15"``."""
    return re.sub(rf'^{key} = "[^"]*"', f'{key} = "{value}"', text, count=1, flags=re.M)


def format_row(name: str, row: dict[str, Any]) -> str:
    return "\n".join([f"[[{name}]]", *(assignment(key, value) for key, value in row.items())])


def assignment(key: str, value: Any) -> str:
    """``key = value`` in the style of the catalogue: a list on one line, or one entry a line where it is long."""
    line = f"{key} = {literal(value)}"
    if not isinstance(value, list) or (len(line) <= WIDTH and not any(isinstance(v, dict) for v in value)):
        return line
    return "\n".join([f"{key} = [", *(f"  {literal(entry)}," for entry in value), "]"])


def literal(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return "[" + ", ".join(literal(entry) for entry in value) + "]"
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{k} = {literal(v)}" for k, v in value.items()) + " }"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return str(value)
