"""Nouns that come from somebody's JSON, held to the fields that they declare before anybody believes them.

Apart from ``noun.py`` because only what reads a stranger's file or line pays for it.
"""

from __future__ import annotations

from functools import cache

from gpuready.noun import Noun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, TypeVar

    One = TypeVar("One", bound=Noun)


def of(noun: type[One], data: object) -> One:
    """A noun from its JSON, each field of the kind that the noun declares; ValueError names the first that is not."""
    found = noun.from_json(data)
    hold(found)
    return found


def hold(noun: Noun) -> None:
    """Nothing, where every field is of the kind that the noun declares; ValueError names the first that is not."""
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
    """Whether a value is of a kind written as an annotation; what is not plain is let through."""
    choices, plain, parts = _read(kind)
    if choices:
        return any(_is(value, one) for one in choices)
    if plain is None:
        return True
    if not isinstance(value, plain) or (isinstance(value, bool) and plain is not _PLAIN["bool"]):
        return False
    return not parts or _holds(value, parts)


@cache  # the annotations are ours and few, and a roll-call of thousands of ranks reads them for each
def _read(kind: str) -> tuple[tuple[str, ...], tuple[type, ...] | None, tuple[str, ...]]:
    """An annotation as its choices, or else its plain types and what stands between its brackets."""
    choices = _split(kind, "|")
    if len(choices) > 1:
        return choices, None, ()
    name, bracket, inside = kind.strip().partition("[")
    return (), _PLAIN.get(name), _split(inside[:-1], ",") if bracket else ()


def _holds(value: Any, parts: tuple[str, ...]) -> bool:
    """Whether what is inside an object or a list is of the kinds between its brackets."""
    if isinstance(value, dict):
        return all(isinstance(k, str) and _is(v, parts[-1]) for k, v in value.items())
    if parts[-1].strip() == "...":
        return all(_is(one, parts[0]) for one in value)
    return not value or (len(value) == len(parts) and all(map(_is, value, parts)))


def _split(kind: str, at: str) -> tuple[str, ...]:
    """The parts of an annotation outside of its brackets."""
    parts, depth = [""], 0
    for char in kind:
        depth += (char == "[") - (char == "]")
        if char == at and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return tuple(parts)
