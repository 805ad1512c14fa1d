"""Fixes that fit the system that a log shows: no dmesg for a Windows log, dnf where there is no apt."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from gpuready.catalog import load_catalog
from gpuready.model import FixStep


def fit_steps(steps: Iterable[FixStep], systems: frozenset[str]) -> tuple[FixStep, ...]:
    """The steps that can be done there, with the programs that are there. A log that shows no system keeps them all."""
    if not systems:
        return tuple(steps)
    kept = (_fit_step(step, systems) for step in steps)
    return tuple(dict.fromkeys(step for step in kept if step is not None))


def _fit_step(step: FixStep, systems: frozenset[str]) -> FixStep | None:
    if not fits_system(step.does, systems):
        return None
    row = _program_row(step.run)
    if row is None or systems & set(row["on"]):
        return step
    other = next((one for one in row.get("instead", ()) if one["on"] in systems), None)
    if other is not None:
        return step.replace(run=_replace_command(step.run, other))
    return None if step.safety == "safe" else step.replace(run=(), safety="manual")


def fits_system(text: str, systems: frozenset[str]) -> bool:
    """Whether a sentence names nothing that only another system has."""
    rows = load_catalog("programs")["words"]
    return not systems or all(systems & set(row["on"]) or not any(word in text for word in row["any"]) for row in rows)


def _program_row(run: Sequence[str]) -> Mapping[str, Any] | None:
    rows: list[dict[str, Any]] = load_catalog("programs")["program"]
    return next((row for row in rows if run and row["name"] == run[0]), None)


def _replace_command(run: Sequence[str], other: Mapping[str, Any]) -> tuple[str, ...]:
    if "run" in other:
        return tuple(other["run"])
    words = other.get("words", {})
    return (str(other["program"]), *(str(words.get(word, word)) for word in run[1:]))
