"""A GPU has bad memory rows that are not replaced yet.

## What it checks
Whether a row remapping is pending or has failed (data-centre GPUs from Ampere on), or the retirement of a page
is pending (before Ampere). Pending: Xid 63, ``Row Remapper: New row marked for remapping``. Failed: Xid 64, no
spare rows are left. Both are errors: NVIDIA's DCGM isolates such a GPU.

## Why it matters
The replacement takes effect only after a reset; until then more errors may occur. Running programs may
finish. After a failed remapping,
jobs crash or compute with wrong data.

## How to fix
NVIDIA's action is a reset, or an RMA after a failure. Reset the idle GPU as root (``nvidia-smi --gpu-reset``) or reboot. On a cloud VM, stop and start it, or
request another host. If the remapping failed, have the GPU replaced; NVIDIA accepts this as a reason for
return.

## References
- NVIDIA GPU Memory Error Management, Row Remapping
- NVIDIA GPU Memory Error Management, RMA Policy Thresholds for Row-Remapping
- NVIDIA DCGM, dcgm_errors.c: DCGM_FR_PENDING_ROW_REMAP and DCGM_FR_ROW_REMAP_FAILURE are DCGM_ERROR_ISOLATE
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, UnknownFactError, make_finding
from gpuready.rules import gpu_health, visible_gpus

CODE = "GPU009"
SEVERITY = "error"
FLAGS = ("gpu.remap_failure", "gpu.remap_pending")
READS = (*gpu_health.READS, *FLAGS)
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {
    "gpu.count": 1,
    "gpu.visible": (0,),
    "gpu.name": ("NVIDIA H100 80GB HBM3",),
    "gpu.remap_failure": (),
    "gpu.remap_pending": (0,),
}
HEALTHY = BROKEN | {"gpu.remap_pending": ()}
CITE = "NVIDIA GPU Memory Error Management, Row Remapping"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if gpu_health.is_not_applicable(facts, contract, *FLAGS) or not visible_gpus.list_visible_gpus(facts):
        return None
    failed = gpu_health.flagged_gpus(facts, "gpu.remap_failure")
    if failed:
        return _remap_failed_finding(facts, failed)
    pending = gpu_health.flagged_gpus(facts, "gpu.remap_pending")
    if pending:
        return _remap_pending_finding(facts, pending)
    for key in FLAGS:
        if facts.fact(key).gap and not gpu_health.is_gap_excused(facts, key):
            raise UnknownFactError(facts.fact(key))
    return None


def _remap_failed_finding(facts: Facts, failed: list[int]) -> Finding:
    return make_finding(
        f"bad memory rows that cannot be replaced in {visible_gpus.describe_gpus(facts, failed)}",
        found=(facts.fact("gpu.remap_failure"),),
        needs=(Requirement("gpu.remap_failure", "none", cite=CITE),),
        so="programs that use the bad row crash or compute with wrong data",
        fix=(*gpu_health.hide_gpus_steps(facts, failed), FixStep("have the vendor replace the GPU", note="RMA")),
    )


def _remap_pending_finding(facts: Facts, pending: list[int]) -> Finding:
    reset = f"drain the GPU, then reset it: nvidia-smi --gpu-reset -i {gpu_health.join_indices(pending)}"
    return make_finding(
        f"bad memory needs a reset of {visible_gpus.describe_gpus(facts, pending)}",
        found=(facts.fact("gpu.remap_pending"),),
        needs=(Requirement("gpu.remap_pending", "none", cite=CITE),),
        so="the bad memory is replaced only when the GPU is reset; until then more errors may occur",
        fix=(FixStep(reset, note="needs root"), *gpu_health.hide_gpus_steps(facts, pending)),
    )
