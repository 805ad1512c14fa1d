"""A GPU does not support bfloat16.

## What it checks
Whether each GPU has bfloat16 in hardware: compute capability 8.0 (Ampere) or newer. It is an error if the job
asks for bf16; otherwise it is information if the framework offers bf16.

## Why it matters
On Volta, Turing and Pascal torch emulates bf16, many times slower. ``torch.cuda.is_bf16_supported()`` returns
True there because emulation counts; ``is_bf16_supported(including_emulation=False)`` gives the right answer.

## How to fix
Use fp16 with a gradient scaler, or fp32. A model trained in bf16 may overflow in fp16, so watch the loss.

## References
- torch/cuda/__init__.py, is_bf16_supported
"""

from gpuready.model import Contract, Facts, Finding, FixStep, make_finding
from gpuready.rules import capability_floors, visible_gpus

CODE = "CAP001"
SEVERITY = "error"
READS = capability_floors.READS
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {
    "job.wants": ("bf16",),
    "gpu.count": 1,
    "gpu.visible": (0,),
    "gpu.name": ("Tesla V100-SXM2-16GB",),
    "gpu.capability": ("7.0",),
}
HEALTHY = BROKEN | {"gpu.name": ("NVIDIA A100-SXM4-80GB",), "gpu.capability": ("8.0",)}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    shortfall = capability_floors.feature_shortfall(facts, contract, "bf16")
    if shortfall is None:
        return None
    requested, floors, old = shortfall
    return make_finding(
        f"bf16 is only emulated on {visible_gpus.describe_gpus(facts, old, old)}",
        found=(facts.fact("gpu.capability"), facts.fact("gpu.name")),
        needs=tuple(floors),
        so="the job starts, because torch counts emulation as support, and is many times slower",
        fix=(
            FixStep("use fp16 instead of bf16"),
            FixStep("use GPUs of compute capability 8.0 or newer", safety="elsewhere"),
        ),
        severity=SEVERITY if requested else "info",
    )
