"""Features the job asks for by name that some GPUs lack according to the catalog.

If the contract itself states a floor for the feature, GPU005 judges it; nothing is reported twice.
"""

from __future__ import annotations

from typing import Any

from gpuready.catalog import features
from gpuready.model import Contract, Facts, Requirement, versions
from gpuready.rules import capability_floors, contract_needs, visible_gpus

READS = capability_floors.READS


def gpus_without_feature(facts: Facts, contract: Contract, feature: str) -> dict[int, Any]:
    """Return the GPUs without a feature the job asks for, with their capability; empty if it does not ask."""
    if "cuda" not in contract.platforms or not capability_floors.feature_requested(facts, feature):
        return {}
    row = features.find_feature(feature) or {}
    capabilities = visible_gpus.fact_per_gpu(facts, "gpu.capability")
    old = {index: c for index, c in capabilities.items() if not _capability_in_range(str(c), row)}
    return {} if old and _contract_has_floor(facts, contract, feature) else old


def _capability_in_range(capability: str, row: dict[str, Any]) -> bool:
    low, high = row.get("min_cc"), row.get("max_cc")
    if low is not None and versions.compare_versions(capability, low) < 0:
        return False
    return high is None or versions.compare_versions(capability, high) <= 0


def _contract_has_floor(facts: Facts, contract: Contract, feature: str) -> bool:
    """Return whether the contract requires its own floor for the feature, and these GPUs miss it."""
    row = features.find_feature(feature) or {}
    names = {n.replace("_", "-") for n in (feature, str(row.get("id", "")), *row.get("aliases", ()))}
    stated = (
        need for need in contract.requirements_for("gpu.capability") if contract_needs.wants_of_need(need) & names
    )
    own = [need for need in stated if need.level == "required"]
    return bool(
        contract_needs.unmet_needs(
            facts, own, lambda facts, need: tuple(visible_gpus.fact_per_gpu(facts, need.key).values())
        )
    )


def feature_need(feature: str) -> Requirement:
    """Return the capability that the catalog requires for a feature, with its source."""
    row = features.find_feature(feature) or {}
    low, high = row["min_cc"], row.get("max_cc")
    want = f"=={low}" if low == high else f">={low}" + (f",<={high}" if high else "")
    source = row["source"]
    return Requirement("gpu.capability", want, cite=str(source[0] if isinstance(source, (list, tuple)) else source))


def falls_back_quietly(contract: Contract, feature: str) -> bool:
    """Return whether, by its contract, the framework skips an unsupported feature instead of failing."""
    return any(feature in (c.name, c.gate) and "falls-back" in c.traits for c in contract.capabilities)
