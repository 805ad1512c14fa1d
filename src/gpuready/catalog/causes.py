"""Causes of failed runs: their names in the taxonomy, the rules that know them, their words and what mends them."""

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
    """The cause that a sign of this rule tells of: the one that it names, else the first that has the code."""
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
    """What only follows from a failure elsewhere, and what it means."""
    rows: list[dict[str, Any]] = load("aftermath")["aftermath"]
    return rows


def filled(text: str, captures: Mapping[str, str]) -> str:
    """The text with its captures; a clause in brackets, ``[ (asked for {want})]``, goes where one is not known."""
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
