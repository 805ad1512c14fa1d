"""Derive a contract from an installed distribution's metadata alone.

A package without a contract is judged by its pins, its Python, and whether it requires torch. Metadata says
nothing of GPUs, jobs or variables.
"""

from __future__ import annotations

from gpuready.contracts.pins import merge_metadata_pins
from gpuready.model import Capability, Contract

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

METADATA_ONLY_NOTE = "no contract of its own: judged by the pins of its metadata alone"


def contract_from_metadata(
    name: str,
    version: str,
    requires_dist: Sequence[str],
    requires_python: str | None = None,
    environment: Mapping[str, str] | None = None,
) -> Contract:
    """Return the contract of a distribution; markers are evaluated as in ``pins.merge_metadata_pins``."""
    bare = Contract(name, version, distribution=name, title=name, origin=f"METADATA of {name} {version}")
    pinned = merge_metadata_pins(bare, version, requires_dist, requires_python, environment)
    if not any(not need.when for need in pinned.requirements_for("package.torch")):
        return pinned.replace(says=METADATA_ONLY_NOTE, platforms=("cpu",))
    # A package that requires torch is ready once torch works on the GPU.
    works = Capability("cuda", "required", cite=f"{bare.origin} requires torch")
    return pinned.replace(says=METADATA_ONLY_NOTE, platforms=("cuda",), capabilities=(works,))
