"""A GPU does not compute in 8-bit floating point.

FP8 matrix products begin with Ada (compute capability 8.9) and Hopper (9.0). Nothing emulates them: below,
``torch._scaled_mm`` and Transformer Engine refuse, and some frameworks quietly compute in another precision
instead. A framework may ask for more than the hardware does; some take FP8 on Hopper and newer alone, and
then that floor counts.

It is an error when the job asks for fp8, and a warning where the framework only recommends such GPUs for it: it
then keeps the weights alone in fp8, or computes in 16 bits. Otherwise it is a line of information, where the
framework offers fp8 and the GPUs lack it. Below the floor, use bf16 on Ampere, fp16 before.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep
from gpuready.rules import capability_floors, visible_gpus

CODE = "CAP002"
SEVERITY = "error"
READS = capability_floors.READS
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
    return Finding(
        CODE,
        severity if requested else "info",
        f"{contract.framework} does not compute in fp8 on {visible_gpus.describe_gpus(facts, old, old)}",
        found=(facts.fact("gpu.capability"), facts.fact("gpu.name")),
        needs=tuple(floors),
        so="the job computes in another precision than it was told"
        if goes_on
        else "the job stops where fp8 begins, or runs in another precision than it was told",
        fix=(
            FixStep("ask for bf16, or for fp16 before Ampere"),
            FixStep(f"use GPUs of compute capability {capability_floors.highest_floor(floors)} or newer"),
        ),
    )
