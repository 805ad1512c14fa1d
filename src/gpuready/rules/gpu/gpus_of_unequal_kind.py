"""The GPUs that the job would use together are different models.

## What it checks
Whether the visible GPUs have the same compute capability, and memory within 5 % of each other. It is a
warning if the job uses more than one GPU, information if the job does not say, and nothing for one GPU. A
device map that spreads a model over different GPUs is not reported.

## Why it matters
The slowest GPU sets the speed, the smallest memory sets the batch size, and the oldest GPU limits which
kernels can be used. CUDA also orders different GPUs by speed, so GPU 0 of a program need not be GPU 0 of
nvidia-smi unless CUDA_DEVICE_ORDER=PCI_BUS_ID is set.

## How to fix
Show only GPUs of one model with CUDA_VISIBLE_DEVICES, or run one job per model.

## References
- torch/nn/parallel/data_parallel.py, _check_balance
- CUDA Programming Guide, 5.2 CUDA Environment Variables
"""

from typing import Any

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import gpu_health, job_request, visible_gpus

CODE = "GPU016"
SEVERITY = "warning"
READS = (*gpu_health.READS, "gpu.capability", "gpu.memory", "job.device_map")
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {
    "job.gpus": 2,
    "gpu.count": 2,
    "gpu.visible": (0, 1),
    "gpu.name": ("NVIDIA A100-PCIE-40GB", "NVIDIA GeForce RTX 3090"),
    "gpu.capability": ("8.0", "8.6"),
    "gpu.memory": (42_949_672_960, 25_769_803_776),
}
HEALTHY = BROKEN | {
    "gpu.name": ("NVIDIA A100-PCIE-40GB",) * 2,
    "gpu.capability": ("8.0", "8.0"),
    "gpu.memory": (42_949_672_960, 42_505_273_344),
}
MULTI_GPU_WANTS = ("multi-gpu", "fsdp", "fsdp2", "tensor-parallel", "expert-parallel", "megatron")
SAME_MEMORY_SHARE = 0.95
"""Memory of at least this share of the largest counts as equal."""


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if (
        gpu_health.is_not_applicable(facts, contract)
        or job_request.job_gpu_count(facts) == 1
        or job_request.uses_device_map(facts)
    ):
        return None
    if len(set(visible_gpus.list_visible_gpus(facts))) < 2:
        return None
    capabilities, memory = (
        visible_gpus.fact_per_gpu(facts, "gpu.capability"),
        visible_gpus.fact_per_gpu(facts, "gpu.memory"),
    )
    kinds = _group_equal_gpus(capabilities, memory)
    if len(kinds) < 2:
        return None
    most = max(kinds, key=len)
    stated = (job_request.job_gpu_count(facts) or 0) > 1 or job_request.job_asks_for(facts, *MULTI_GPU_WANTS)
    return make_finding(
        f"the GPUs are different models: {visible_gpus.join_names([_describe_gpu_group(facts, kind, memory) for kind in kinds])}",
        found=tuple(facts.fact(key) for key in ("gpu.name", "gpu.capability", "gpu.memory") if key in facts),
        needs=(_equality_need(capabilities, memory, most[0]),),
        so="a job over all of them has the speed of the slowest and the memory of the smallest",
        fix=(
            FixStep(
                f"show only GPUs of one model: CUDA_VISIBLE_DEVICES={visible_gpus.visible_devices_value(facts, most)}"
            ),
        ),
        severity=SEVERITY if stated else "info",
    )


def _describe_gpu_group(facts: Facts, kind: list[int], memory: dict[int, Any]) -> str:
    """Return ``2 x Tesla T4 (15 GiB)``."""
    names = facts.value_if_known("gpu.name") or ()
    name = names[kind[0]] if kind[0] < len(names) else "GPU"
    return f"{len(kind)} x {name} ({memory[kind[0]] / 2**30:.0f} GiB)"


def _equality_need(capabilities: dict[int, Any], memory: dict[int, Any], model: int) -> Requirement:
    """Return the need that the others miss: the capability, else the memory, of the largest group."""
    cite = "torch/nn/parallel/data_parallel.py, _check_balance"
    if len(set(capabilities.values())) > 1:
        return Requirement("gpu.capability", f"=={capabilities[model]}", level="recommended", cite=cite)
    return Requirement("gpu.memory", f">={int(memory[model] * SAME_MEMORY_SHARE)}", level="recommended", cite=cite)


def _group_equal_gpus(capabilities: dict[int, Any], memory: dict[int, Any]) -> list[list[int]]:
    """Group equal GPUs, largest memory first."""
    kinds: list[list[int]] = []
    for index in sorted(memory, key=lambda i: -memory[i]):
        for kind in kinds:
            alike = capabilities[kind[0]] == capabilities[index]
            if alike and memory[index] >= memory[kind[0]] * SAME_MEMORY_SHARE:
                kind.append(index)
                break
        else:
            kinds.append([index])
    return kinds
