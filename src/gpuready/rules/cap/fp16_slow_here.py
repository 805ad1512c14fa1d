"""A GPU computes in fp16 slower than in fp32.

GPUs of the Pascal generation for desktops and inference (compute capability 6.1: GTX 10, P4, P40, Titan Xp)
run fp16 arithmetic at a sixty-fourth of their fp32 rate; it is there so that programs run, not so that they
run fast. Older ones than 5.3 have none. A P100 (6.0), in contrast, is twice as fast in fp16, and from Volta
(7.0) on tensor cores make it many times as fast.

It is a warning when the job asks for fp16 on such a GPU: the results are right, and storing weights in fp16
still saves memory. Compute in fp32, or use 8 or 4 bits to save memory; a newer GPU is the only way to
speed.
"""

from __future__ import annotations

from gpuready import versions
from gpuready.model import Finding, Need, Step
from gpuready.rules import cards, gate

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts

CODE = "CAP003"
SEVERITY = "warning"
READS = gate.READS
SIGNS = ()
BROKEN = {
    "job.wants": ("fp16",),
    "gpu.count": 1,
    "gpu.visible": (0,),
    "gpu.name": ("Tesla P40",),
    "gpu.capability": ("6.1",),
}
HEALTHY = BROKEN | {"gpu.name": ("Tesla P100-PCIE-16GB",), "gpu.capability": ("6.0",)}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms or not gate.asked(facts, "fp16_amp"):
        return None
    slow = {i: c for i, c in cards.each(facts, "gpu.capability").items() if _slow(str(c))}
    if not slow:
        return None
    return Finding(
        CODE,
        SEVERITY,
        f"fp16 is slower than fp32 on {cards.called(facts, slow, slow)}",
        found=(facts.fact("gpu.capability"), facts.fact("gpu.name")),
        needs=(
            Need(
                "gpu.capability",
                ">=7.0|==6.0",
                level="recommended",
                cite="CUDA C++ Programming Guide, arithmetic instructions: throughput by compute capability",
            ),
        ),
        so="the job runs many times slower than in fp32, with the same results",
        fix=(Step("compute in fp32"), Step("use GPUs of compute capability 7.0 or newer")),
    )


def _slow(capability: str) -> bool:
    return versions.minor(capability) == (6, 1) or versions.compare(capability, "5.3") < 0
