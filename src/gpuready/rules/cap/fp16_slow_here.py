"""A GPU computes in fp16 slower than in fp32.

## What it checks
Whether the job asks for fp16 on a GPU of compute capability 6.1 (GTX 10, P4, P40, Titan Xp) or below 5.3. It
is a warning. A P100 (6.0) is twice as fast in fp16, and GPUs from Volta (7.0) on are many times faster.

## Why it matters
Those GPUs run fp16 at a sixty-fourth of their fp32 rate. Results are right, and storing weights in fp16 still
saves memory.

## How to fix
Compute in fp32, use 8 or 4 bits to save memory, or use a newer GPU.

## References
- CUDA C++ Programming Guide 12, Arithmetic Instructions: throughput by compute capability
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding, versions
from gpuready.rules import capability_floors, visible_gpus

CODE = "CAP003"
SEVERITY = "warning"
READS = capability_floors.READS
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {
    "job.wants": ("fp16",),
    "gpu.count": 1,
    "gpu.visible": (0,),
    "gpu.name": ("Tesla P40",),
    "gpu.capability": ("6.1",),
}
HEALTHY = BROKEN | {"gpu.name": ("Tesla P100-PCIE-16GB",), "gpu.capability": ("6.0",)}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms or not capability_floors.feature_requested(facts, "fp16_amp"):
        return None
    slow = {i: c for i, c in visible_gpus.fact_per_gpu(facts, "gpu.capability").items() if _is_slow_in_fp16(str(c))}
    if not slow:
        return None
    return make_finding(
        f"fp16 is slower than fp32 on {visible_gpus.describe_gpus(facts, slow, slow)}",
        found=(facts.fact("gpu.capability"), facts.fact("gpu.name")),
        needs=(
            Requirement(
                "gpu.capability",
                ">=7.0|==6.0",
                level="recommended",
                cite="CUDA C++ Programming Guide 12, Arithmetic Instructions: throughput by compute capability",
            ),
        ),
        so="the job runs many times slower than in fp32, with the same results",
        fix=(FixStep("compute in fp32"), FixStep("use GPUs of compute capability 7.0 or newer", safety="elsewhere")),
    )


def _is_slow_in_fp16(capability: str) -> bool:
    return versions.major_minor(capability) == (6, 1) or versions.compare_versions(capability, "5.3") < 0
