"""A contract as the TOML that ``--contract`` takes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from gpuready.model import Contract, Record

_HEAD = ("framework", "version", "variant", "distribution", "title", "origin")
_TABLES = ("needs", "capabilities", "variables", "errors", "steps")
_LISTS = ("other_variables", "notes")


def render_contract_toml(contract: Contract) -> str:
    lines = [f"{key} = {_quote(getattr(contract, key))}" for key in _HEAD if getattr(contract, key)]
    lines.append(f"platforms = {_quote_list(contract.platforms)}")
    for table in _TABLES:
        lines += _format_list(table, [_format_row(row) for row in getattr(contract, table)])
    for key in _LISTS:
        lines += _format_list(key, [_quote(text) for text in getattr(contract, key, ())])
    return "\n".join(lines) + "\n"


def _format_list(key: str, rows: Sequence[str]) -> list[str]:
    return ["", f"{key} = [", *(f"  {row}," for row in rows), "]"] if rows else []


def _format_row(row: Record) -> str:
    """``{ key = "python.version", want = ">=3.10" }``: fields with their default are left out."""
    defaults = type(row)._defaults
    fields = [(name, getattr(row, name)) for name in type(row)._fields]
    stated = [(name, value) for name, value in fields if name not in defaults or value != defaults[name]]
    return "{ " + ", ".join(f"{name} = {_format_value(value)}" for name, value in stated) + " }"


def _format_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return _quote_list(value) if isinstance(value, tuple) else _quote(str(value))


def _quote_list(texts: Iterable[str]) -> str:
    return "[" + ", ".join(_quote(text) for text in texts) + "]"


def _quote(text: str) -> str:
    """A basic string of TOML, which escapes as JSON does; a control character is escaped too."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
