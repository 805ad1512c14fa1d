"""Causes of failed runs: their slugs, the rules that detect them, their texts and their fixes."""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any

from gpuready.catalog import load_catalog


def list_causes() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = load_catalog("causes")["cause"]
    return rows


def find_cause(slug: str) -> dict[str, Any] | None:
    return _index_causes()[0].get(slug)


def find_cause_for_code(code: str, slug: str = "") -> dict[str, Any] | None:
    """Return the cause named by a log pattern of this rule, else the one whose first code it is, else one with the code."""
    by_slug, by_code = _index_causes()
    return by_slug.get(slug) or by_code.get(code)


def find_cause_for_pair(caller: str, package: str) -> str:
    """Return the slug of the cause that names these two packages, else any caller of this package; empty where there is none."""
    pairs = _index_pairs()
    return pairs.get(f"{caller} > {package}") or pairs.get(f"* > {package}", "")


@cache
def _index_pairs() -> dict[str, str]:
    return {pair: row["slug"] for row in list_causes() for pair in row.get("pairs", ())}


@cache
def _index_causes() -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    by_code: dict[str, dict[str, Any]] = {}
    for part in (slice(1), slice(1, None)):
        for row in list_causes():
            for code in row["codes"][part]:
                by_code.setdefault(code, row)
    return {row["slug"]: row for row in list_causes()}, by_code


def list_consequences() -> list[dict[str, Any]]:
    """Return the messages that only follow from a failure elsewhere, with their meaning."""
    rows: list[dict[str, Any]] = load_catalog("aftermath")["aftermath"]
    return rows


def list_patterns(code: str) -> list[str | dict[str, Any]]:
    """Return the log patterns of a rule, as they are written."""
    return _index_patterns().get(code, [])


@cache
def _index_patterns() -> dict[str, list[str | dict[str, Any]]]:
    by_code: dict[str, list[str | dict[str, Any]]] = {}
    for code, pattern in load_catalog("patterns")["rows"]:
        by_code.setdefault(code, []).append(pattern)
    return by_code


def shorten(text: str, size: int) -> str:
    """The text, or as many whole words of it as there is room for."""
    return text if len(text) <= size else f"{text[:size].rpartition(' ')[0] or text[:size]}\u2026"


_NO_NAME = re.compile(r"&&|\|\||\$[({]|\d>&?\d|^%[sd]$")
"""A piece of a shell's command, or a placeholder that nobody filled."""


def fill_captures(text: str, captures: Mapping[str, str]) -> str:
    """Fill in captures; drop a bracketed clause, ``[ (asked for {want})]``, if one of its captures is missing."""

    def fill(match: re.Match[str]) -> str:
        clause, name = match.groups()
        if clause is not None:
            names = re.findall(r"{([^{}\n]*)}", clause)
            is_told = all(captures.get(n) and not _NO_NAME.search(captures[n]) for n in names)
            return fill_captures(clause, captures) if is_told else ""
        return shorten(captures[name], 60) if name in captures else match[0]

    return re.sub(r"\[([^][\n]*)\]|{([^{}\n]*)}", fill, text)
