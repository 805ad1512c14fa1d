"""Proofs: what is executed to show a capability, and what it requires."""

from __future__ import annotations

from gpuready.catalog import load, remembered
from gpuready.noun import Noun


class Row(Noun):
    """One proof of the catalog; proofs.toml describes each column."""

    name: str
    script: str
    device: str  # cuda, cpu, any
    capability: tuple[str, ...] = ()
    says: str = ""
    arguments: tuple[str, ...] = ()
    package: str = ""
    modules: tuple[str, ...] = ()
    framework: tuple[str, ...] = ()
    contract: tuple[str, ...] = ()
    default: bool = False
    deadline: float = 60.0
    ranks: int = 1
    gpus: int = 0
    memory: int = 0
    alone: bool = False
    gate: str = ""
    executed: str = ""
    source: str = ""


@remembered
def every() -> tuple[Row, ...]:
    """Return all proofs in catalog order."""
    return tuple(Row.from_json(row) for row in load("proofs")["proof"])


def named(name: str) -> Row | None:
    return next((row for row in every() if row.name == name), None)


def of(capability: str, framework: str = "") -> tuple[Row, ...]:
    """Return the proofs of one capability: the framework's own if it has any, else the general ones."""
    found = [row for row in every() if capability in row.capability]
    own = tuple(row for row in found if framework in row.contract)
    return own or tuple(row for row in found if not row.contract)


def capabilities() -> tuple[str, ...]:
    """Return every capability that has a proof."""
    return tuple(dict.fromkeys(name for row in every() for name in row.capability))


def for_framework(framework: str) -> tuple[Row, ...]:
    """Return the proofs a framework always needs, whatever its contract lists."""
    return tuple(row for row in every() if framework in row.framework or "*" in row.framework)
