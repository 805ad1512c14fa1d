"""The allocator's expandable segments are on, which vLLM's sleep mode does not support.

## What it checks
Whether expandable segments are on and the job uses vLLM before 0.21. It is a warning, because without sleep
mode they work together. ROLL clears the old variable before it creates an engine, so there only
PYTORCH_ALLOC_CONF (torch 2.9 and newer) is reported.

## Why it matters
In sleep mode vLLM uses its own memory pool, which expandable segments do not support: ``Expandable segments
are not compatible with memory pool``. From 0.21 on vLLM turns them off for its pool.

## How to fix
Unset the variable in the process that runs vLLM. The trainer can keep it.

## References
- vLLM pull requests 14189 and 40812
- PyTorch issue 147851
"""

from gpuready.contracts import when as conditions
from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding, versions
from gpuready.rules import contract_needs, environment_variables, job_request

CODE = "SYS014"
SEVERITY = "warning"
READS = (*environment_variables.ALLOCATOR_READS, "job.wants", *contract_needs.READS)
REQUIRED_FACTS = ("env.PYTORCH_CUDA_ALLOC_CONF", "env.PYTORCH_ALLOC_CONF", "env.PYTORCH_HIP_ALLOC_CONF")
BROKEN = {
    "job.wants": ("vllm",),
    "env.names": ("PYTORCH_CUDA_ALLOC_CONF",),
    "env.PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    "package.torch": "2.8.0+cu128",
    "package.vllm": "0.10.2",
}
HEALTHY = BROKEN | {"env.PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:512"}
SINCE = "0.21"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if not _is_vllm_requested(facts, contract):
        return None
    effective = environment_variables.effective_allocator_setting(facts)
    if (
        effective is None
        or not environment_variables.uses_expandable_segments(effective[1])
        or _is_removed_for_vllm(contract, effective[0])
    ):
        return None
    version = facts.value("package.vllm")
    if version is None or versions.compare_versions(str(version), SINCE) >= 0:
        return None
    variable = effective[0]
    cite = "vLLM pull request 14189; PyTorch issue 147851; turned off by itself from pull request 40812 on"
    return make_finding(
        f"expandable segments are on ({variable}), which the sleep mode of vLLM {version} does not support",
        found=(facts.fact(f"env.{variable}"), facts.fact("package.vllm")),
        needs=(Requirement("package.vllm", f">={SINCE}", level="recommended", cite=cite),),
        so="vLLM fails to start with sleep mode; without sleep mode it runs",
        fix=(
            FixStep(f"unset {variable} in the processes that run vLLM"),
            FixStep("give vLLM its own GPUs, without sleep mode"),
        ),
    )


def _is_vllm_requested(facts: Facts, contract: Contract) -> bool:
    """Return whether the job or the contract asks for vLLM."""
    if job_request.job_asks_for(facts, "vllm"):
        return True
    required = [n for n in contract.requirements_for("package.vllm") if n.level == "required"]
    return any(conditions.certainly_applies(need.when, facts) for need in required)


def _is_removed_for_vllm(contract: Contract, name: str) -> bool:
    """Return whether, by its contract, the framework removes the variable for vLLM."""
    return any(v.name == name and "emptied-for-vllm" in v.traits for v in contract.variables)
