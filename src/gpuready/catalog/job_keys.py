"""The keys of frameworks' configuration files, and what their values may be."""

from __future__ import annotations

from functools import cache

from gpuready.catalog import load_catalog


@cache
def list_job_keys(framework: str) -> dict[str, tuple[str, ...]]:
    """Return the keys of a framework's file with the kinds of their values, empty where any will do; none if unknown."""
    rows = [row for row in load_catalog("job_keys")["keys"] if row["framework"] == framework]
    return {name: tuple(row["takes"]) for row in reversed(rows) for name in row["names"]}
