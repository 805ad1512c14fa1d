"""A GPU does not support FP8.

## What it checks
Whether each GPU has FP8 in hardware: compute capability 8.9 (Ada), 9.0 (Hopper) or newer; or the higher floor
of the framework. It is an error if the job asks for fp8, a warning if the framework only recommends such
GPUs, and otherwise information if the framework offers fp8.

## Why it matters
FP8 is not emulated. ``torch._scaled_mm`` and Transformer Engine refuse; some frameworks silently compute in
another precision, or only store weights in fp8.

## How to fix
Use bf16 on Ampere, fp16 on older GPUs.

## References
- torch/testing/_internal/common_cuda.py, evaluate_platform_supports_fp8
- Transformer Engine documentation
"""

from gpuready.model import Contract, Facts, Finding, FixStep, make_finding
from gpuready.rules import capability_floors, visible_gpus

CODE = "CAP002"
SEVERITY = "error"
READS = capability_floors.READS
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {
    "job.wants": ("fp8",),
    "gpu.count": 1,
    "gpu.visible": (0,),
    "gpu.name": ("NVIDIA A100-SXM4-80GB",),
    "gpu.capability": ("8.0",),
}
HEALTHY = BROKEN | {"gpu.name": ("NVIDIA H100 80GB HBM3",), "gpu.capability": ("9.0",)}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    shortfall = capability_floors.feature_shortfall(facts, contract, "fp8")
    if shortfall is None:
        return None
    requested, floors, old = shortfall
    own = floors[1:]  # the first is from the catalog
    goes_on = bool(own) and all(need.level != "required" for need in own)
    severity = "warning" if goes_on else SEVERITY
    return make_finding(
        f"{contract.framework} does not support fp8 on {visible_gpus.describe_gpus(facts, old, old)}",
        found=(facts.fact("gpu.capability"), facts.fact("gpu.name")),
        needs=tuple(floors),
        so="the job computes in another precision than requested"
        if goes_on
        else "the job stops, or computes in another precision than requested",
        fix=(
            FixStep("use bf16, or fp16 on GPUs before Ampere"),
            FixStep(
                f"use GPUs of compute capability {capability_floors.highest_floor(floors)} or newer", safety="elsewhere"
            ),
        ),
        severity=severity if requested else "info",
    )
