"""The job asks for flash attention that these GPUs cannot run.

## What it checks
Whether each GPU supports the requested FlashAttention: version 2 needs compute capability 8.0 (Ampere);
version 3 is for Hopper (9.0), can be built for Ampere without its gains, and not for Blackwell; version 4 is
for Hopper and data-centre Blackwell (9 and 10), not for RTX 50 and RTX PRO (12). It is an error;
FlashAttention-3 on Ampere and Ada, or a framework that silently uses another attention, is a warning. A
requirement of the framework is GPU005.

## Why it matters
The job stops at the first attention layer: ``FlashAttention only supports Ampere GPUs or newer``, or no
kernel image.

## How to fix
Use ``sdpa``, which is part of torch and runs on all GPUs, with flash kernels from Ampere on.

## References
- Dao-AILab/flash-attention README
"""

from typing import Any

from gpuready.model import Contract, Facts, Finding, versions
from gpuready.rules import capability_floors, visible_gpus

CODE = "CAP005"
SEVERITY = "error"
READS = capability_floors.READS
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {
    "job.wants": ("flash-attn",),
    "gpu.count": 1,
    "gpu.visible": (0,),
    "gpu.name": ("Tesla T4",),
    "gpu.capability": ("7.5",),
}
HEALTHY = BROKEN | {"gpu.name": ("NVIDIA A100-SXM4-80GB",), "gpu.capability": ("8.0",)}
ATTENTION_WANTS = {
    "flash_attention_2": "flash-attn",
    "flash_attention_3": "flash-attn-3",
    "flash_attention_4": "flash-attn-4",
}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    lacking = capability_floors.gpus_by_lacking_feature(facts, contract, ATTENTION_WANTS)
    if not lacking:
        return None
    names = visible_gpus.join_names([ATTENTION_WANTS[feature] for feature in lacking])
    is_error = any(_attention_fails(contract, feature, gpus) for feature, gpus in lacking.items())
    other = "another attention is used instead, or this one without its gains"
    return capability_floors.lacking_finding(
        facts,
        lacking,
        f"not supported on {{}}: {names}",
        "the job stops at the first attention layer" if is_error else other,
        "use torch's own attention: sdpa",
        SEVERITY if is_error else "warning",
    )


def _attention_fails(contract: Contract, feature: str, unfit: dict[int, Any]) -> bool:
    """Return whether this attention certainly fails on these GPUs, instead of running another way."""
    if capability_floors.falls_back_quietly(contract, ATTENTION_WANTS[feature]):
        return False
    majors = {versions.major_version(str(capability)) for capability in unfit.values()}
    # FlashAttention 3 can be built for Ampere, and whether 4 supports Thor (11) is not documented.
    return bool(majors - {"flash_attention_3": {8}, "flash_attention_4": {11}}.get(feature, set()))
