"""The disk of the downloaded models has less room than the weights take.

The weights of the stated model are counted as in MEM001: parameters times the bytes of the precision that
the job asks for, at the least. A checkpoint on the hub is rarely smaller, and often larger: it is mostly
stored in 16 bits, whatever is made of it later. Where the disk below the cache has less room than that, the
download breaks off with the disk full, after an hour perhaps.

It is a warning, because the model may be there already, from an earlier run. Nothing is said when the hub
is not asked (HF_HUB_OFFLINE) or the job names a folder of this machine. Put the cache on a larger disk with
HF_HOME, or clear it with ``hf cache rm``.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement
from gpuready.rules import job_request, model_hub

CODE = "SYS009"
SEVERITY = "warning"
READS = ("disk.free", "disk.path", *model_hub.READS, "job.*")
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
    if free is None or size <= free or not model_hub.may_download_model(facts):
        return None
    return Finding(
        CODE,
        SEVERITY,
        f"the weights of the model take {size / 1e9:.0f} GB, and the disk of the cache has {free / 1e9:.0f}",
        found=(facts.fact("disk.free"), facts.fact("disk.path"), facts.fact("job.parameters")),
        needs=(Requirement("disk.free", f">={size / 1e9:.1f}GB", level="recommended", cite=how),),
        so="unless the model is there already, its download breaks off when the disk is full",
        fix=(
            FixStep("point HF_HOME to a folder on a larger disk"),
            FixStep("remove models that are no longer needed: hf cache ls, hf cache rm"),
        ),
    )
