"""The job asks for fp8 with experts, which works by block only.

## What it checks
Whether the job asks for fp8 with a mixture-of-experts model under ROLL. It is information, because the
configuration may already be right.

## Why it matters
vLLM quantizes dense models to fp8 per tensor or in blocks of 128 by 128. For models with experts (MoE) under
ROLL only blocks work: with scales per tensor, the update of the weights after the first training step fails.

## How to fix
Set ``weight_block_size: [128, 128]`` in the quantization of the rollout, or keep the rollout in bf16.

## References
- ROLL, docs_roll/docs/User Guides/Configuration/fp8_rollout.md
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import job_request

CODE = "CAP010"
SEVERITY = "info"
READS = ("job.wants",)
REQUIRED_FACTS = ("job.wants",)
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
    return make_finding(
        f"{contract.framework} supports fp8 for models with experts by block only, not by tensor",
        found=(facts.fact("job.wants"),),
        needs=(Requirement("job.wants", "fp8 by block", level="optional", cite=offers[0].cite),),
        so="with scales by tensor the update of the experts' weights fails",
        fix=(FixStep("set weight_block_size to [128, 128] in the quantization of the rollout"),),
    )
