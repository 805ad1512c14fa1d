"""The grammar of ``want``: what a need requires of one fact.

A want is alternatives (``|``) of clauses (``,``). A clause is read by the type of the value: version
specifiers for text that is a version, comparisons with an optional unit for numbers, words for text,
``true`` or ``false`` for flags. ``*`` requires only that there is a value.
"""

import re
from functools import lru_cache
from typing import Any

from gpuready.model import sizes
from gpuready.model.contract import describe_want as describe_want
from gpuready.model.versions import COMPARISONS, is_version, satisfies_specifier, split_clause

ANY = "*"
BYTE_UNITS = ("B", "KB", "MB", "GB", "TB", "KiB", "MiB", "GiB", "TiB")
"""Units of a want, spelled in one way only."""


def value_meets_want(want: str, value: Any) -> bool:
    """Return whether a known value meets a want. Every element of a list must; None meets nothing.

    ValueError, with a sentence, where the want is malformed or does not fit the type of the value.
    """
    if value is None:
        return False
    if isinstance(value, (list, tuple)):
        return bool(value) and all(value_meets_want(want, item) for item in value)
    choices = _split_choices(want)
    if choices == [[ANY]]:
        return True
    meets = _clause_matcher(value)
    # Evaluate every clause: a malformed one is an error for any value.
    answers = [[meets(clause, value) for clause in clauses] for clauses in choices]
    return any(all(each) for each in answers)


def may_meet_want(want: str, value: Any) -> bool:
    """Return whether a value meets a want; True where the two cannot be compared, which rules out nothing.

    ``~=3.8.0`` is any release of 3.8.
    """
    if str(value).startswith("~="):
        is_exact = want.startswith("==") and not want.endswith("*")
        return may_meet_want(value, want[2:]) if is_exact else may_meet_want(want, value[2:])
    try:
        return value_meets_want(want, value)
    except ValueError:
        return True


def check_want(want: str, kind: str = "") -> None:
    """Raise ValueError where a want is malformed, or does not fit facts of this kind (version, bytes, int …)."""
    choices = _split_choices(want)
    if choices == [[ANY]]:
        return
    for clause in (c for clauses in choices for c in clauses):
        if not any(_clause_fits_kind(clause, one) for one in _KINDS.get(kind, ("version", "number", "flag", "word"))):
            raise ValueError(_bad_clause_message(clause, kind))


def parse_quantity(text: str) -> float:
    """Parse ``16GB`` -> 16e9, ``16GiB`` -> 16 * 2**30, ``8`` -> 8. ValueError for anything else."""
    size = sizes.parse_size(text) if sizes.split_unit(text)[1] in ("", *BYTE_UNITS) else None
    if size is None:
        raise ValueError(f"{text!r} is not a quantity: write a number, with one of {', '.join(BYTE_UNITS)} for bytes")
    return size


@lru_cache(4096)
def _split_choices(want: str) -> list[list[str]]:
    choices = [[c.strip() for c in choice.split(",")] for choice in want.split("|")]
    if not all(clause for clauses in choices for clause in clauses):
        raise ValueError(f"the want {want!r} has an empty part: write for example >=2.2,<=2.5.1 or linux|wsl")
    return choices


def _clause_matcher(value: object) -> Any:
    if isinstance(value, bool):
        return _match_flag
    if isinstance(value, (int, float)):
        return _match_number
    return _match_text


def _match_flag(clause: str, value: bool) -> bool:
    if clause not in ("true", "false"):
        raise ValueError(f"{clause!r} does not fit a flag: write true or false")
    return value is (clause == "true")


def _match_number(clause: str, value: float) -> bool:
    operator, bound = _split_number_clause(clause)
    return COMPARISONS[operator](value, parse_quantity(bound))


def _split_number_clause(clause: str) -> tuple[str, str]:
    operator, bound = split_clause(clause)
    if operator == "~=":
        raise ValueError(f"{clause!r} does not fit a number: ~= is for versions")
    return operator, bound


def _match_text(clause: str, value: str) -> bool:
    if clause[0] not in "<>=!~":
        return value.strip().casefold() == clause.casefold()
    return satisfies_specifier(_leading_version(value), clause)


def _leading_version(value: str) -> str:
    """Return the version itself, or the leading digits of a text such as ``5.15.0-91-generic``."""
    if is_version(value.strip()):
        return value.strip()
    match = re.match(r"\s*v?(\d+(?:\.\d+)*)", value, re.ASCII)
    if match is None:
        raise ValueError(f"{value!r} is not a version")
    return match[1]


def _clause_fits_kind(clause: str, kind: str) -> bool:
    sample: Any = {"version": "1.0", "number": 1, "flag": True, "word": ""}[kind]
    if kind == "word":
        return re.fullmatch(r"[\w][\w .+/-]*", clause) is not None
    try:
        _clause_matcher(sample)(clause, sample)
    except ValueError:
        return False
    return kind != "version" or clause[0] in "<>=!~"


_NUMBERS = ("int", "ints", "float", "seconds", "bytes", "bytes_list")
_KINDS: dict[str, tuple[str, ...]] = {
    "version": ("version",),
    "versions": ("version",),
    "bool": ("flag",),
    "text": ("word", "version"),
    "texts": ("word", "version"),
    **dict.fromkeys(_NUMBERS, ("number",)),
}


def _bad_clause_message(clause: str, kind: str) -> str:
    examples = {"version": ">=2.2,<=2.5.1", "number": ">=16GB or >=2", "flag": "true", "word": "linux|wsl"}
    shown = ", ".join(examples[one] for one in _KINDS.get(kind, tuple(examples)))
    return f"{clause!r} is not something a {kind or 'need'} can be asked: write for example {shown}"
