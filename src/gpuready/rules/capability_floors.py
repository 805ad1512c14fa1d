"""Arithmetic that only some GPUs support: whether the job asks for it, and which GPUs lack it.

The floor is that of the catalog, or of the contract if that is higher. If the job does not ask for the feature, its
absence is at most information, and only if the requirements offer it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from gpuready.catalog import gpus
from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding, versions
from gpuready.rules import contract_needs, job_request, visible_gpus

READS = (*visible_gpus.READS, *contract_needs.READS)


def feature_requested(facts: Facts, feature: str) -> bool:
    """Return whether the job asks for a feature by any of its names."""
    row = gpus.find_feature(feature) or {}
    names = (feature, str(row.get("id", "")), *row.get("aliases", ()))
    return job_request.job_asks_for(facts, *(name.lower().replace("_", "-") for name in names))


def feature_offered(contract: Contract, feature: str) -> bool:
    """Return whether the contract lists a capability of this name."""
    return any(feature in (capability.name, capability.gate) for capability in contract.capabilities)


def feature_floors(contract: Contract, feature: str) -> list[Requirement]:
    """Return the capability floors of a feature: from the catalog, and from the contract if it states one."""
    row = gpus.find_feature(feature) or {}
    own = Requirement("gpu.capability", f">={row['min_cc']}", cite=str(row["source"]))
    stated = [
        need for need in contract.requirements_for("gpu.capability") if feature in contract_needs.wants_of_need(need)
    ]
    return [own, *stated]


def gpus_below_floor(facts: Facts, wanted: list[Requirement]) -> dict[int, Any]:
    """Return the GPUs below a floor, with their capability."""
    capabilities = visible_gpus.fact_per_gpu(facts, "gpu.capability")
    return {
        i: c
        for i, c in capabilities.items()
        if not all(contract_needs.value_meets_need(facts, need, c) for need in wanted)
    }


def highest_floor(wanted: list[Requirement]) -> str:
    """Return the highest floor as text: ``8.9``."""
    lowest = [versions.find_version(need.want) or "0" for need in wanted]
    return max(lowest, key=versions.major_minor)


def gpus_unknown(facts: Facts) -> bool:
    """Return whether the GPUs cannot be judged: information is then omitted and nothing is left undecided."""
    keys = ("gpu.count", "gpu.visible", "gpu.capability")
    return any(contract_needs.peek_fact(facts, key) is None for key in keys)


def feature_shortfall(
    facts: Facts, contract: Contract, feature: str
) -> tuple[bool, list[Requirement], dict[int, Any]] | None:
    """Return whether the job asks for a feature, its floors, and the GPUs below them.

    None if no GPU is below a floor, or neither the job nor the contract mentions the feature.
    """
    requested = feature_requested(facts, feature)
    if "cuda" not in contract.platforms or not (requested or feature_offered(contract, feature)):
        return None
    if not requested and gpus_unknown(facts):
        return None
    lowest = feature_floors(contract, feature)
    old = gpus_below_floor(facts, lowest)
    return (requested, lowest, old) if old else None


def gpus_without_feature(facts: Facts, contract: Contract, feature: str) -> dict[int, Any]:
    """Return the GPUs without a feature the job asks for, with their capability; empty if it does not ask."""
    row = gpus.find_feature(feature) or {}
    is_own = (contract.distribution or contract.framework) in row.get("aliases", ())
    if "cuda" not in contract.platforms or not (is_own or feature_requested(facts, feature)):
        return {}
    capabilities = visible_gpus.fact_per_gpu(facts, "gpu.capability")
    old = {index: c for index, c in capabilities.items() if not _capability_in_range(str(c), row)}
    return {} if old and _contract_has_floor(facts, contract, feature) else old


def gpus_by_lacking_feature(facts: Facts, contract: Contract, features: Iterable[str]) -> dict[str, dict[int, Any]]:
    """Return, for each of these features that the job asks for and some GPU lacks, those GPUs with their capability."""
    found = {feature: gpus_without_feature(facts, contract, feature) for feature in features}
    return {feature: unfit for feature, unfit in found.items() if unfit}


def lacking_finding(
    facts: Facts, lacking: Mapping[str, Mapping[int, Any]], says: str, so: str, instead: str, severity: str
) -> Finding:
    """Return the finding about features that GPUs lack; in ``says`` ``{}`` stands for the GPUs."""
    unfit = {index: capability for gpus in lacking.values() for index, capability in gpus.items()}
    needs = tuple(feature_need(feature) for feature in lacking)
    larger = f"use GPUs of compute capability {' and '.join(need.want for need in needs)}"
    return make_finding(
        says.format(visible_gpus.describe_gpus(facts, unfit, unfit)),
        found=(facts.fact("gpu.capability"), facts.fact("gpu.name")),
        needs=needs,
        so=so,
        fix=(FixStep(instead), FixStep(larger, safety="elsewhere")),
        severity=severity,
    )


def _capability_in_range(capability: str, row: dict[str, Any]) -> bool:
    low, high = row.get("min_cc"), row.get("max_cc")
    if low is not None and versions.compare_versions(capability, low) < 0:
        return False
    return high is None or versions.compare_versions(capability, high) <= 0


def _contract_has_floor(facts: Facts, contract: Contract, feature: str) -> bool:
    """Return whether the contract requires its own floor for the feature, and these GPUs miss it."""
    row = gpus.find_feature(feature) or {}
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
    row = gpus.find_feature(feature) or {}
    low, high = row["min_cc"], row.get("max_cc")
    want = f"=={low}" if low == high else f">={low}" + (f",<={high}" if high else "")
    source = row["source"]
    return Requirement("gpu.capability", want, cite=str(source[0] if isinstance(source, (list, tuple)) else source))


def falls_back_quietly(contract: Contract, feature: str) -> bool:
    """Return whether, by its contract, the framework skips an unsupported feature instead of failing."""
    return any(feature in (c.name, c.gate) and "falls-back" in c.traits for c in contract.capabilities)
