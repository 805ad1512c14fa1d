"""Proofs: what is executed to show a capability, and what it requires."""

from __future__ import annotations

from functools import cache

from gpuready.catalog import load_catalog
from gpuready.model.record import Record


class ProofSpec(Record):
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


@cache
def list_proofs() -> tuple[ProofSpec, ...]:
    """Return all proofs in catalog order."""
    return tuple(ProofSpec.from_json(row) for row in load_catalog("proofs")["proof"])


def find_proof(name: str) -> ProofSpec | None:
    return next((row for row in list_proofs() if row.name == name), None)


def proofs_for_capability(capability: str, framework: str = "") -> tuple[ProofSpec, ...]:
    """Return the proofs of one capability: the framework's own if it has any, else the general ones."""
    matching = [row for row in list_proofs() if capability in row.capability]
    own = tuple(row for row in matching if framework in row.contract)
    return own or tuple(row for row in matching if not row.contract)


def list_proof_capabilities() -> tuple[str, ...]:
    """Return every capability that has a proof."""
    return tuple(dict.fromkeys(name for row in list_proofs() for name in row.capability))


def is_capability(word: str) -> bool:
    """Whether a job's word is a capability, with a proof or without one."""
    return bool(proofs_for_capability(word)) or word in load_catalog("proofs")["without"]["capability"]


def proofs_for_framework(framework: str) -> tuple[ProofSpec, ...]:
    """Return the proofs a framework always needs, whatever its contract lists."""
    return tuple(row for row in list_proofs() if framework in row.framework or "*" in row.framework)


def list_start_modules() -> dict[str, tuple[str, ...]]:
    """Return by distribution the modules that a framework's own commands start from and that need no GPU."""
    rows = [row for row in load_catalog("proofs")["proof"] if "entry-point" in row.get("capability", ())]
    return {
        row.get("package") or row["framework"][0]: tuple(row.get("arguments", ()))
        for row in rows
        if row["device"] == "any"
    }
