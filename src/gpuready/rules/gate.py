"""Arithmetic that only some GPUs support: whether the job asks for it, and which GPUs lack it.

The floor is that of the catalog, or of the contract if that is higher. If the job does not ask for the feature, its
absence is at most information, and only if the contract offers it.
"""

from __future__ import annotations

from gpuready import versions
from gpuready.catalog import features
from gpuready.model import Need
from gpuready.rules import cards, job, needs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.model import Contract, Facts

READS = (*cards.READS, *needs.READS)


def asked(facts: Facts, feature: str) -> bool:
    """Return whether the job asks for a feature by any of its names."""
    row = features.feature(feature) or {}
    names = (feature, str(row.get("id", "")), *row.get("aliases", ()))
    return job.asks(facts, *(name.lower().replace("_", "-") for name in names))


def offered(contract: Contract, feature: str) -> bool:
    """Return whether the contract lists a capability of this name."""
    return any(feature in (capability.name, capability.gate) for capability in contract.capabilities)


def floors(contract: Contract, feature: str) -> list[Need]:
    """Return the capability floors of a feature: from the catalog, and from the contract if it states one."""
    row = features.feature(feature) or {}
    own = Need("gpu.capability", f">={row['min_cc']}", cite=str(row["source"]))
    stated = [need for need in contract.wants("gpu.capability") if feature in needs.words(need)]
    return [own, *stated]


def lacking(facts: Facts, wanted: list[Need]) -> dict[int, Any]:
    """Return the GPUs below a floor, with their capability."""
    capabilities = cards.each(facts, "gpu.capability")
    return {i: c for i, c in capabilities.items() if not all(needs.holds(facts, need, c) for need in wanted)}


def highest(wanted: list[Need]) -> str:
    """Return the highest floor as text: ``8.9``."""
    found = [versions.first(need.want) or "0" for need in wanted]
    return max(found, key=versions.minor)


def out_of_sight(facts: Facts) -> bool:
    """Return whether the GPUs cannot be judged: information is then omitted and nothing is left undecided."""
    keys = ("gpu.count", "gpu.visible", "gpu.capability")
    return any(needs.glimpse(facts, key) is None for key in keys)


def short_of(
    facts: Facts, contract: Contract, feature: str
) -> tuple[bool, list[Need], dict[int, Any]] | None:
    """Return whether the job asks for a feature, its floors, and the GPUs below them.

    None if no GPU is below a floor, or neither the job nor the contract mentions the feature.
    """
    wanted = asked(facts, feature)
    if "cuda" not in contract.platforms or not (wanted or offered(contract, feature)):
        return None
    if not wanted and out_of_sight(facts):
        return None
    lowest = floors(contract, feature)
    old = lacking(facts, lowest)
    return (wanted, lowest, old) if old else None
