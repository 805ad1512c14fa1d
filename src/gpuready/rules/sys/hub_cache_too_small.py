"""The disk of the model cache has less free space than the weights need.

## What it checks
The free space at the model cache against the size of the stated model: parameters times the bytes of the
job's precision. It is a warning, because the model may already be there. Nothing is reported with
HF_HUB_OFFLINE or if the job names a local folder.

## Why it matters
The download stops when the disk is full, perhaps after an hour. A checkpoint on the hub is rarely smaller
than this, because it is usually stored in 16 bits.

## How to fix
Put the cache on a larger disk with HF_HOME, or remove models with ``hf cache rm``.

## References
- huggingface_hub, manage the cache
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import job_request

CODE = "SYS009"
SEVERITY = "warning"
READS = ("disk.free", "disk.path", *job_request.HUB_READS, "job.*")
REQUIRED_FACTS = ("job.model", "job.parameters")
BROKEN = {
    "job.parameters": 70_000_000_000,
    "job.wants": ("bf16",),
    "disk.free": 50_000_000_000,
    "disk.path": "/home/ada/.cache/huggingface/hub",
    "hub.offline": False,
}
HEALTHY = BROKEN | {"disk.free": 500_000_000_000}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    weights = job_request.estimate_weight_bytes(facts)
    if weights is None or "disk.free" not in facts:
        return None
    size, how = weights
    free = facts.value("disk.free")
    if free is None or size <= free or not job_request.may_download_model(facts):
        return None
    return make_finding(
        f"the model's weights need {size / 1e9:.0f} GB, but the disk of the cache has {free / 1e9:.0f} GB free",
        found=(facts.fact("disk.free"), facts.fact("disk.path"), facts.fact("job.parameters")),
        needs=(Requirement("disk.free", f">={size / 1e9:.1f}GB", level="recommended", cite=how),),
        so="unless the model is already there, its download stops when the disk is full",
        fix=(
            FixStep("set HF_HOME to a folder on a larger disk"),
            FixStep("remove models that are no longer needed: hf cache ls, hf cache rm"),
        ),
    )
