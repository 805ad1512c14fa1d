"""A GPU does not compute in bfloat16.

bfloat16 arithmetic begins with Ampere (compute capability 8.0). On Volta, Turing and Pascal torch emulates
it: ``torch.cuda.is_bf16_supported()`` says True there, because emulation counts for it, and a configuration
with ``bf16: true`` is accepted and runs, many times slower than it could. Ask
``torch.cuda.is_bf16_supported(including_emulation=False)`` for the true answer.

It is an error when the job asks for bf16. Otherwise it is a line of information, where the framework offers
bf16 and the GPUs lack it. On such GPUs use fp16 with a gradient scaler, or fp32. A model that was trained in
bf16 may overflow in fp16; look at the loss.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep
from gpuready.rules import capability_floors, visible_gpus

CODE = "CAP001"
SEVERITY = "error"
READS = capability_floors.READS
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
    return Finding(
        CODE,
        SEVERITY if requested else "info",
        f"bf16 is only emulated on {visible_gpus.describe_gpus(facts, old, old)}",
        found=(facts.fact("gpu.capability"), facts.fact("gpu.name")),
        needs=tuple(floors),
        so="the job starts, since torch counts emulation as support, and runs many times slower",
        fix=(FixStep("ask for fp16 instead of bf16"), FixStep("use GPUs of compute capability 8.0 or newer")),
    )
