"""Compare a table of a knowledge file with the shape of gpuready's own: keys, types, versions, lengths.

The shape is derived from the shipped table, so that nothing has to be kept beside it: a row needs the keys that all
rows of its list have, a value has the types that are seen at its place, and a text that is a version everywhere must
be one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuready.contracts.validate import has_control_characters
from gpuready.model import Record
from gpuready.model.versions import is_version

MAX_TEXT, MAX_ITEMS, MAX_DEPTH, MAX_NUMBER = 20_000, 50_000, 12, 1e18
OPEN_TABLES = ("defaults", "config", "codenames")
"""Keys under which names of their own lie: the configuration of a model, the releases of a system."""
_MAP_KEY = r"\d[\w.]*|[A-Z]{3}\d{3}"
"""Keys that are values: a CUDA or system version, the code of a rule."""


class TableShape(Record):
    """What values at one place of a table look like."""

    kinds: frozenset[str]
    fields: Mapping[str, TableShape]
    required: frozenset[str]
    items: TableShape | None = None
    entries: TableShape | None = None  # the values of a map


def describe_shape(values: Sequence[Any]) -> TableShape:
    """Return the shape that these values of one place have in common."""
    tables = [value for value in values if isinstance(value, dict)]
    records = [{k: v for k, v in table.items() if not re.fullmatch(_MAP_KEY, k)} for table in tables]
    entries = [v for table in tables for k, v in table.items() if re.fullmatch(_MAP_KEY, k)]
    items = [item for value in values if isinstance(value, (list, tuple)) for item in value]
    names = {key for record in records for key in record}
    return TableShape(
        frozenset(map(_kind_of, values)),
        {name: describe_shape([record[name] for record in records if name in record]) for name in names},
        frozenset(name for name in names if all(name in record for record in records)),
        describe_shape(items) if items else None,
        describe_shape(entries) if entries else None,
    )


def _kind_of(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return "true or false" if value is not None else "nothing"
    if isinstance(value, (int, float)):
        return "a number"
    if isinstance(value, str):
        return "a version" if is_version(value) else "text"
    return "a table" if isinstance(value, dict) else "a list"


def find_shape_problems(shape: TableShape, value: Any, place: str) -> Iterator[str]:
    """Yield what is wrong with a value at a place of a table, in short sentences."""
    kind = _kind_of(value)
    if kind not in shape.kinds and not (kind == "a version" and "text" in shape.kinds):
        yield f"{place} is {kind}, not {' or '.join(sorted(shape.kinds)) or 'anything known'}"
    elif isinstance(value, dict):
        if place.rpartition(".")[2] not in OPEN_TABLES:
            yield from _find_key_problems(shape, value, place)
    elif isinstance(value, list):
        if shape.items is None and value:
            yield f"{place} has entries, and it is empty in every known table"
        for number, item in enumerate(value, 1) if shape.items else ():
            yield from find_shape_problems(shape.items or shape, item, f"{place} {number}")


def _find_key_problems(shape: TableShape, table: dict[str, Any], place: str) -> Iterator[str]:
    for name in sorted(shape.required - set(table)):
        yield f"{place} lacks {name!r}"
    for name, value in table.items():
        inner = shape.fields.get(name) or (shape.entries if re.fullmatch(_MAP_KEY, name) else None)
        if inner is None:
            yield f"{place} has the key {name[:60]!a}, which this schema does not know"
        else:
            yield from find_shape_problems(inner, value, f"{place}.{name}")


def find_text_problems(value: Any, place: str, depth: int = 0) -> Iterator[str]:
    """Yield texts that are too long or hide characters, lists that are too long, and nesting that is too deep."""
    if depth > MAX_DEPTH:
        yield f"{place} is nested more than {MAX_DEPTH} deep"
    elif isinstance(value, str):
        if len(value) > MAX_TEXT:
            yield f"{place} has a text of more than {MAX_TEXT} characters"
        elif has_control_characters(value):
            yield f"{place} has a control character or an invisible one"
    elif isinstance(value, (int, float)):
        if not abs(value) < MAX_NUMBER:
            yield f"{place} has a number that nothing has"
    elif isinstance(value, (list, dict)):
        if len(value) > MAX_ITEMS:
            yield f"{place} has more than {MAX_ITEMS} entries"
            return
        inner = value.values() if isinstance(value, dict) else value
        for part in (*inner, *(value if isinstance(value, dict) else ())):
            yield from find_text_problems(part, place, depth + 1)
