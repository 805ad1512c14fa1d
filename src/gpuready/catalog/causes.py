"""Causes of failed runs: their slugs, the rules that detect them, their texts and their fixes."""

from __future__ import annotations

from gpuready.catalog import load, remembered

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def every() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = load("causes")["cause"]
    return rows


def named(slug: str) -> dict[str, Any] | None:
    return _index()[0].get(slug)


def of(code: str, slug: str = "") -> dict[str, Any] | None:
    """Return the cause named by a log pattern of this rule, else the first cause with the code."""
    by_slug, by_code = _index()
    return by_slug.get(slug) or by_code.get(code)


@remembered
def _index() -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    by_code: dict[str, dict[str, Any]] = {}
    for row in every():
        for code in row["codes"]:
            by_code.setdefault(code, row)
    return {row["slug"]: row for row in every()}, by_code


def aftermath() -> list[dict[str, Any]]:
    """Return the messages that only follow from a failure elsewhere, with their meaning."""
    rows: list[dict[str, Any]] = load("aftermath")["aftermath"]
    return rows


def filled(text: str, captures: Mapping[str, str]) -> str:
    """Fill in captures; drop a bracketed clause, ``[ (asked for {want})]``, if one of its captures is missing."""
    out, rest = "", text
    while "[" in rest:
        head, _, rest = rest.partition("[")
        clause, _, rest = rest.partition("]")
        out += head + (_put(clause, captures) if _known(clause, captures) else "")
    return _put(out + rest, captures)


def _known(clause: str, captures: Mapping[str, str]) -> bool:
    names = [part.partition("}")[0] for part in clause.split("{")[1:]]
    return all(captures.get(name) for name in names)


def _put(text: str, captures: Mapping[str, str]) -> str:
    for name, value in captures.items():
        text = text.replace("{" + name + "}", value[:60])
    return text
