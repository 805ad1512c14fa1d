"""The GPUs have less memory than the job needs.

## What it checks
The memory of the visible GPUs against two numbers: a minimum that the framework states, and the size of the
model's weights (parameters times the bytes of the job's precision). Activations, gradients, optimizer states
and caches are not counted. It is an error only if the model size is stated (``--model 7b``); otherwise a
framework's minimum is information. Without a stated precision 16 bits per weight are assumed. Nothing is
reported with offloading or a device map, or if the job asks for more GPUs than this machine has. A card may
show up to a sixteenth less than its nominal size.

## Why it matters
Loading the model fails with CUDA out of memory.

## How to fix
Quantize (``--wants 4bit`` or ``8bit``), offload, use more or larger GPUs, or use a smaller model. ``gpuready
fit`` predicts the whole job.

## References
- The framework's requirements, with their citations in the finding
"""

from typing import Any

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import contract_needs, job_request, visible_gpus

CODE = "MEM001"
SEVERITY = "error"
READS = (*visible_gpus.READS, "gpu.memory", *contract_needs.READS)
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {
    "job.parameters": 70_000_000_000,
    "job.wants": ("bf16",),
    "gpu.count": 1,
    "gpu.visible": (0,),
    "gpu.memory": (85_520_809_984,),
}
HEALTHY = BROKEN | {"job.parameters": 7_000_000_000}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    floors, weights = contract.requirements_for("gpu.memory"), job_request.estimate_weight_bytes(facts)
    if "cuda" not in contract.platforms or not (floors or weights):
        return None
    stated = job_request.job_parameter_count(facts) is not None
    if not stated and contract_needs.peek_fact(facts, "gpu.memory") is None:
        return None
    if not visible_gpus.list_visible_gpus(facts):
        return None
    failed = contract_needs.unmet_needs(facts, floors, _nominal_memory)
    short = _weights_need(facts, weights) if weights else None
    if not failed and short is None:
        return None
    lacking = [*failed, *([short] if short else [])]
    return make_finding(
        f"{_gpus_have_phrase(facts)} less memory than {_memory_demand(short, contract)}",
        found=tuple(facts.fact(key) for key in ("gpu.memory", "job.parameters", "job.wants") if key in facts),
        needs=tuple(lacking),
        so="loading the model fails with CUDA out of memory" if short else "typical jobs run out of memory",
        fix=(
            FixStep("use 8-bit or 4-bit weights, or offloading"),
            FixStep("use more or larger GPUs, or a smaller model"),
        ),
        severity=_memory_severity(failed, short, stated),
    )


def _nominal_memory(facts: Facts, need: Requirement) -> tuple[Any, ...]:
    """Return the advertised memory of each GPU: ECC and the driver reserve up to a sixteenth."""
    return tuple(int(size * 16 / 15) for size in visible_gpus.fact_per_gpu(facts, need.key).values())


def _weights_need(facts: Facts, weights: tuple[int, str]) -> Requirement | None:
    """Return a need if the weights exceed all GPUs together; None if they fit or may be offloaded."""
    count, sizes = (
        job_request.job_gpu_count(facts),
        sorted(visible_gpus.fact_per_gpu(facts, "gpu.memory").values(), reverse=True),
    )
    if job_request.offloads_weights(facts) or (count or 0) > len(sizes):
        return None
    size, how = weights
    if size <= sum(sizes[:count]):
        return None
    return Requirement("gpu.memory", f">={size / 1e9:.1f}GB", cite=f"{how}; over all GPUs together")


def _memory_severity(failed: list[Requirement], short: Requirement | None, stated: bool) -> str:
    if short:
        return "error"
    # Floors that apply because of a stated job keep their severity.
    by_job = [need for need in failed if stated or contract_needs.wants_of_need(need)]
    return contract_needs.worst_need_severity(by_job) if by_job else "info"


def _memory_demand(short: Requirement | None, contract: Contract) -> str:
    return "the weights of the model need" if short else f"{contract.framework} requires"


def _gpus_have_phrase(facts: Facts) -> str:
    visible = visible_gpus.list_visible_gpus(facts)
    return "the GPU has" if len(visible) == 1 else f"the {len(visible)} GPUs have"
