"""A GPU is older than the framework supports.

## What it checks
Whether each GPU has the compute capability that the framework asks for (7.0 Volta, 7.5 Turing, 8.0 and 8.6
Ampere, 8.9 Ada, 9.0 Hopper, 10.x and 12.x Blackwell). The requirement can apply to the whole framework or to
one feature that the job uses, such as flash attention. A required capability is an error, a recommended one a
warning.

## Why it matters
The framework refuses the GPU, or its kernels fail on it. No software change adds a compute capability to a
GPU.

## How to fix
Use a newer GPU, another version of the framework, or a configuration without the feature. On a machine with
different GPUs, show only the newer ones with CUDA_VISIBLE_DEVICES. CAP001 and CAP002 cover bf16 and fp8.

## References
- The framework's requirements, with their citations in the finding
- CUDA Programming Guide, 5.1 Compute Capabilities
"""

from typing import Any

from gpuready.catalog.packages import find_package
from gpuready.catalog.releases import list_releases
from gpuready.contracts.want import value_meets_want
from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.model.versions import satisfies_specifier
from gpuready.rules import contract_needs, visible_gpus

CODE = "GPU005"
SEVERITY = "error"
READS = (*visible_gpus.READS, *contract_needs.READS)
REQUIRED_FACTS = ("gpu.count",)
CONTRACT = {"needs": ({"key": "gpu.capability", "want": ">=7.0", "cite": "README.md:474"},)}
BROKEN = {"gpu.count": 1, "gpu.visible": (0,), "gpu.name": ("Tesla P100-PCIE-16GB",), "gpu.capability": ("6.0",)}
HEALTHY = BROKEN | {"gpu.name": ("Tesla V100-PCIE-16GB",), "gpu.capability": ("7.0",)}

OTHER_RULES_FEATURES = {"bf16", "fp8"}
"""Features whose floors have more specific rules."""


def judge(facts: Facts, contract: Contract) -> Finding | None:
    floors = [
        n
        for n in contract.requirements_for("gpu.capability")
        if not contract_needs.wants_of_need(n) & OTHER_RULES_FEATURES
    ]
    if not floors or not visible_gpus.list_visible_gpus(facts):
        return None
    failed = contract_needs.unmet_needs(
        facts, floors, lambda facts, need: tuple(visible_gpus.fact_per_gpu(facts, need.key).values())
    )
    if not failed:
        return None
    capabilities = visible_gpus.fact_per_gpu(facts, "gpu.capability")
    old = {
        i: c for i, c in capabilities.items() if not all(contract_needs.value_meets_need(facts, n, c) for n in failed)
    }
    return make_finding(
        f"{_name_of_failed(failed, contract)} {_failure_verb(failed)} {visible_gpus.describe_gpus(facts, old, old)}",
        found=(facts.fact("gpu.capability"), facts.fact("gpu.name")),
        needs=tuple(failed),
        so=_floor_consequence(failed, contract),
        fix=tuple(_capability_floor_steps(facts, contract, failed, old, capabilities)),
        severity=contract_needs.worst_need_severity(failed),
    )


def _name_of_failed(failed: list[Requirement], contract: Contract) -> str:
    return visible_gpus.join_names(_failed_features(failed)) if _failed_features(failed) else contract.framework


def _failed_features(failed: list[Requirement]) -> list[str]:
    return sorted({word for need in failed for word in contract_needs.wants_of_need(need)})


def _failure_verb(failed: list[Requirement]) -> str:
    return "does not support" if contract_needs.worst_need_severity(failed) == "error" else "recommends newer GPUs than"


def _floor_consequence(failed: list[Requirement], contract: Contract) -> str:
    if contract_needs.worst_need_severity(failed) == "error":
        return f"{_name_of_failed(failed, contract)} refuses these GPUs or fails on them"
    return f"{_name_of_failed(failed, contract)} runs slower or with fewer features on these GPUs"


def _capability_floor_steps(
    facts: Facts, contract: Contract, failed: list[Requirement], old: dict[int, Any], all_gpus: dict[int, Any]
) -> list[FixStep]:
    steps = []
    fit = [index for index in all_gpus if index not in old]
    if fit:
        steps.append(
            FixStep(f"show only the newer GPUs: CUDA_VISIBLE_DEVICES={visible_gpus.visible_devices_value(facts, fit)}")
        )
    if _failed_features(failed):
        steps.append(FixStep(f"turn off {visible_gpus.join_names(_failed_features(failed))} on these GPUs"))
    elif release := _last_release_for(contract, old):
        steps.append(FixStep(f"take {contract.framework} {release}, the last that supports them"))
    wanted = " and ".join(dict.fromkeys(need.want for need in failed))
    return [*steps, FixStep(f"use GPUs of compute capability {wanted}", safety="elsewhere")]


def _last_release_for(contract: Contract, old: dict[int, Any]) -> str:
    """Return the newest release whose floor in the catalogue these GPUs reach; empty where there is none."""
    name = contract.distribution or contract.framework
    floors = (find_package(name) or {}).get("floors", ())
    reached = [row["versions"] for row in floors if all(value_meets_want(row["capability"], c) for c in old.values())]
    fitting = (v for v in reversed(list_releases(name)) if any(satisfies_specifier(v, one) for one in reached))
    return next(fitting, "")
