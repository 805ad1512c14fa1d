"""Validate decoded JSON against a record's annotations.

Separate from the record module because only code that reads untrusted input needs it.
"""

from functools import cache
from typing import Any, TypeVar

from gpuready.model.record import Record, describe_record_type

RecordT = TypeVar("RecordT", bound=Record)


def parse_record(record_type: type[RecordT], data: object) -> RecordT:
    """Build a record from JSON and check each field against its annotation; ValueError names the first wrong field."""
    record = record_type.from_json(data)
    validate_record(record)
    return record


def validate_record(record: Record) -> None:
    """Check each field against its annotation; ValueError names the first wrong field."""
    for field in type(record)._fields:
        value, kind = getattr(record, field), str(type(record).__annotations__[field])
        if not _matches_annotation(value, kind):
            expected = kind.replace("tuple[", "list of [").replace("Mapping", "dict")
            raise ValueError(f"{field!r} of {describe_record_type(type(record))} must be {expected}")
        if field in type(record).nested_records():
            for item in value if isinstance(value, tuple) else (value,):
                if isinstance(item, Record):
                    validate_record(item)


_PLAIN_TYPES: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "None": (type(None),),
    "tuple": (tuple, list),
    "dict": (dict,),
    "Mapping": (dict,),
}


def _matches_annotation(value: Any, kind: str) -> bool:
    """Whether a value matches an annotation in text form; anything but plain types passes."""
    choices, plain, parts = _parse_annotation(kind)
    if choices:
        return any(_matches_annotation(value, choice) for choice in choices)
    if plain is None:
        return True
    if not isinstance(value, plain) or (isinstance(value, bool) and plain is not _PLAIN_TYPES["bool"]):
        return False
    return not parts or _items_match(value, parts)


@cache  # few distinct annotations, and a rollcall of thousands of ranks checks them for each
def _parse_annotation(kind: str) -> tuple[tuple[str, ...], tuple[type, ...] | None, tuple[str, ...]]:
    """An annotation as its alternatives, or else its plain types and the arguments in brackets."""
    choices = _split_annotation(kind, "|")
    if len(choices) > 1:
        return choices, None, ()
    name, bracket, inside = kind.strip().partition("[")
    return (), _PLAIN_TYPES.get(name), _split_annotation(inside[:-1], ",") if bracket else ()


def _items_match(value: Any, parts: tuple[str, ...]) -> bool:
    """Whether the items of a dict or list match the annotation's arguments."""
    if isinstance(value, dict):
        return all(isinstance(k, str) and _matches_annotation(v, parts[-1]) for k, v in value.items())
    if parts[-1].strip() == "...":
        return all(_matches_annotation(item, parts[0]) for item in value)
    return not value or (len(value) == len(parts) and all(map(_matches_annotation, value, parts)))


def _split_annotation(kind: str, at: str) -> tuple[str, ...]:
    """Split an annotation at a separator outside of brackets."""
    parts, depth = [""], 0
    for char in kind:
        depth += (char == "[") - (char == "]")
        if char == at and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return tuple(parts)
