"""The environment variables that rules, contracts and probes name; compiled from their sources."""

from __future__ import annotations

from gpuready.catalog import load_catalog


def is_asked_variable(name: str) -> bool:
    """Whether a rule, a contract or a probe asks for this variable."""
    table = load_catalog("variables")
    return name in table["names"] or name.startswith(tuple(table["prefixes"]))
