"""Derive a contract from an installed distribution's metadata alone.

A package without a contract is judged by its pins, its Python, and whether it requires torch. Metadata says
nothing of GPUs, jobs or variables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuready.contracts.pins import merge_metadata_pins
from gpuready.model import Capability, Contract

METADATA_ONLY_NOTE = "no contract of its own: judged by the pins of its metadata alone"
TORCH_EXTRAS = ("torch", "pytorch", "pt")
"""Extras by which packages that can do without torch ask for it."""


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
    return _make_for_gpus(pinned)


def _make_for_gpus(contract: Contract) -> Contract:
    """A package that requires torch is ready once torch works on the GPU."""
    works = Capability("cuda", "required", cite=f"{contract.origin} requires torch")
    return contract.replace(says=METADATA_ONLY_NOTE, platforms=("cuda",), capabilities=(works,))


def with_torch_extra(contract: Contract) -> Contract | None:
    """Return the contract with what its extra for torch requires: ``diffusers[torch]``, or the only one that brings it.

    None where it has none, or several that say nothing by their names.
    """
    extras = list_torch_extras(contract)
    chosen = [name for name in TORCH_EXTRAS if name in extras] or (extras if len(extras) == 1 else [])
    if not chosen:
        return None
    needs = tuple(need.replace(when="") if need.when == f"wants={chosen[0]}" else need for need in contract.needs)
    return _make_for_gpus(contract.replace(needs=needs))


def list_torch_extras(contract: Contract) -> list[str]:
    """Return the extras of a package that bring torch."""
    conditions = (need.when for need in contract.requirements_for("package.torch"))
    return list(dict.fromkeys(when.removeprefix("wants=") for when in conditions if when.startswith("wants=")))
