"""The job asks for fp8 with a mixture of experts, which goes by blocks only.

vLLM quantises dense models to fp8 with one scale for each tensor or for blocks of 128 by 128. Under ROLL,
models with experts (MoE) take blocks only: the expert kernels have no other way, and a configuration with
scales by tensor fails when the weights are updated after the first training step.

This is a line of information, since the configuration may have it right. Set the quantisation of the
rollout to fp8 with ``weight_block_size: [128, 128]`` for such models, or leave the rollout in bf16.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement
from gpuready.rules import job_request

CODE = "CAP010"
SEVERITY = "info"
READS = ("job.wants",)
CONTRACT = {
    "framework": "roll",
    "capabilities": ({"name": "fp8", "cite": "fp8_rollout.md:59", "traits": ("moe-by-block",)},),
}
BROKEN = {"job.wants": ("fp8", "moe")}
HEALTHY = {"job.wants": ("fp8",)}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    offers = [c for c in contract.capabilities if c.name == "fp8" and "moe-by-block" in c.traits]
    if "cuda" not in contract.platforms or not offers or not job_request.job_asks_for(facts, "fp8"):
        return None
    if not job_request.job_asks_for(facts, "moe"):
        return None
    return Finding(
        CODE,
        SEVERITY,
        f"{contract.framework} takes fp8 for models with experts by block only, not by tensor",
        found=(facts.fact("job.wants"),),
        needs=(Requirement("job.wants", "fp8 by block", level="optional", cite=offers[0].cite),),
        so="scales by tensor fail when the experts' weights are updated",
        fix=(FixStep("set weight_block_size to [128, 128] in the quantisation of the rollout"),),
    )
