"""Compare the keys of a job's file with those its framework knows: what is misspelt, unknown, or of a wrong kind."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

from gpuready.catalog import load_catalog
from gpuready.jobs.config_reader import FALSE_WORDS, TRUE_WORDS, short_repr
from gpuready.model.record import Record

NEAR_ENOUGH = 0.8
"""How alike (difflib) an unknown key and a known one must be to be called a misspelling."""

KIND_WORDS = {
    "switch": "true or false", "whole": "a whole number", "number": "a number", "text": "text", "list": "a list",
    "mapping": "a mapping",
}  # fmt: skip


class KeyProblems(Record):
    """``misspelt``: key and the nearest known one; ``wrong``: key, what it takes, and what it has."""

    misspelt: tuple[tuple[str, str], ...] = ()
    wrong: tuple[tuple[str, str, str], ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def sentences(self) -> list[str]:
        said = [f"it has no key {key}: did you mean {near}?" for key, near in self.misspelt]
        return said + [f"{key} takes {takes}, not {found}" for key, takes, found in self.wrong]


def find_key_problems(kind: str, config: Mapping[str, Any]) -> KeyProblems:
    """Compare the top level of a file with what its framework's own schema declares."""
    known = list_job_keys(kind)
    if not known:
        return KeyProblems()
    strange = [key for key in config if key not in known]
    nearest = {key: _nearest_key(key, known, config) for key in strange}
    wrong = [
        (key, " or ".join(KIND_WORDS[one] for one in known[key]), short_repr(value))
        for key, value in config.items()
        if known.get(key) and not _fits_kinds(known[key], value)
    ]
    misspelt = tuple((key, near) for key, near in nearest.items() if near)
    return KeyProblems(misspelt, tuple(wrong), tuple(key for key, near in nearest.items() if not near))


def _nearest_key(key: str, known: Mapping[str, Any], config: Mapping[str, Any]) -> str:
    """Return the known key that was meant: alike, and not in the file already."""
    word = key.strip().lower().replace("-", "_")
    free = [name for name in known if name not in config]
    return next(iter(get_close_matches(word, free, 1, NEAR_ENOUGH)), "")


def _fits_kinds(kinds: tuple[str, ...], value: Any) -> bool:
    """Whether a value is, or can be read as, one of these kinds, as pydantic reads it."""
    if value is None or (isinstance(value, str) and ("${" in value or not value.strip())):
        return True
    return any(_fits_kind(kind, value) for kind in kinds)


def _fits_kind(kind: str, value: Any) -> bool:
    if kind in ("list", "mapping"):
        return isinstance(value, list if kind == "list" else dict)
    if isinstance(value, (list, dict)):
        return False
    word = str(value).strip().lower()
    if kind == "switch":
        return word in (*TRUE_WORDS, *FALSE_WORDS, "t", "f", "y", "n", "1.0", "0.0")
    return kind == "text" or isinstance(value, bool) or _is_number(word)


def _is_number(word: str) -> bool:
    """Whether it is any number: releases differ in which may have a fraction."""
    try:
        float(word)
    except ValueError:
        return False
    return True


@cache
def list_job_keys(framework: str) -> dict[str, tuple[str, ...]]:
    """Return the keys of a framework's file with the kinds of their values, empty where any will do; none if unknown."""
    rows = [row for row in load_catalog("job_keys")["keys"] if row["framework"] == framework]
    return {name: tuple(row["takes"]) for row in reversed(rows) for name in row["names"]}
