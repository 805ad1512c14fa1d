"""Validate decoded JSON against a record's annotations.

Separate from the record module because only code that reads untrusted input needs it.
"""

from __future__ import annotations

from functools import cache

from gpuready.noun import Noun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    One = TypeVar("One", bound=Noun)


def of(noun: type[One], data: object) -> One:
    """Build a record from JSON and check each field against its annotation; ValueError names the first wrong field."""
    found = noun.from_json(data)
    hold(found)
    return found


def hold(noun: Noun) -> None:
    """Check each field against its annotation; ValueError names the first wrong field."""
    for field in type(noun)._fields:
        value, kind = getattr(noun, field), str(type(noun).__annotations__[field])
        if not _is(value, kind):
            said = kind.replace("tuple[", "list of [").replace("Mapping", "dict")
            raise ValueError(f"{field!r} of a {type(noun).__name__.lower()} must be {said}")
        if field in type(noun)._nested:
            for one in value if isinstance(value, tuple) else (value,):
                if isinstance(one, Noun):
                    hold(one)


_PLAIN: dict[str, tuple[type, ...]] = {
    "str": (str,),
    "int": (int,),
    "float": (int, float),
    "bool": (bool,),
    "None": (type(None),),
    "tuple": (tuple, list),
    "dict": (dict,),
    "Mapping": (dict,),
}


def _is(value: Any, kind: str) -> bool:
    """Whether a value matches an annotation given as text; anything but plain types passes."""
    choices, plain, parts = _read(kind)
    if choices:
        return any(_is(value, one) for one in choices)
    if plain is None:
        return True
    if not isinstance(value, plain) or (isinstance(value, bool) and plain is not _PLAIN["bool"]):
        return False
    return not parts or _holds(value, parts)


@cache  # few distinct annotations, and a rollcall of thousands of ranks checks them for each
def _read(kind: str) -> tuple[tuple[str, ...], tuple[type, ...] | None, tuple[str, ...]]:
    """An annotation as its alternatives, or else its plain types and the arguments in brackets."""
    choices = _split(kind, "|")
    if len(choices) > 1:
        return choices, None, ()
    name, bracket, inside = kind.strip().partition("[")
    return (), _PLAIN.get(name), _split(inside[:-1], ",") if bracket else ()


def _holds(value: Any, parts: tuple[str, ...]) -> bool:
    """Whether the items of a dict or list match the annotation's arguments."""
    if isinstance(value, dict):
        return all(isinstance(k, str) and _is(v, parts[-1]) for k, v in value.items())
    if parts[-1].strip() == "...":
        return all(_is(one, parts[0]) for one in value)
    return not value or (len(value) == len(parts) and all(map(_is, value, parts)))


def _split(kind: str, at: str) -> tuple[str, ...]:
    """Split an annotation at a separator outside of brackets."""
    parts, depth = [""], 0
    for char in kind:
        depth += (char == "[") - (char == "]")
        if char == at and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return tuple(parts)
