"""The memory of a GPU has had uncorrectable errors.

## What it checks
The count of uncorrected ECC errors since the driver was loaded or the GPU was reset. It is an error until the
GPU is reset. GPUs without ECC, or with ECC off, have no count. If the GPU waits for a reset to replace bad
memory, or cannot replace it any more, GPU009 reports it instead.

## Why it matters
The program that reads the bad memory is ended: ``uncorrectable ECC error encountered``, Xid 48, 94 or 95 in
the kernel log. A single error means little. A count that grows or returns after a reset means that the GPU is
failing.

## How to fix
NVIDIA's action: drain the GPU and reset it, or reboot the node. Then run ``dcgmi diag -r 3``, and have the GPU
replaced if errors return.

## References
- NVIDIA GPU Memory Error Management
- NVIDIA DCGM, dcgm_errors.h: DCGM_FR_VOLATILE_DBE_DETECTED
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import gpu_health, visible_gpus

CODE = "GPU008"
SEVERITY = "error"
FLAGS = ("gpu.remap_failure", "gpu.remap_pending")
READS = (*gpu_health.READS, "gpu.ecc_errors", *FLAGS)
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {
    "gpu.count": 1,
    "gpu.visible": (0,),
    "gpu.name": ("NVIDIA A100-SXM4-80GB",),
    "gpu.ecc_errors": (3,),
    "gpu.remap_pending": (),
    "gpu.remap_failure": (),
}
HEALTHY = BROKEN | {"gpu.ecc_errors": (0,)}
CITE = "NVIDIA DCGM, dcgm_errors.h: DCGM_FR_VOLATILE_DBE_DETECTED (drain the GPU and reset it)"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if gpu_health.is_not_applicable(facts, contract, "gpu.ecc_errors") or not visible_gpus.list_visible_gpus(facts):
        return None
    reported_elsewhere = {i for key in FLAGS if key in facts for i in gpu_health.flagged_gpus(facts, key)}
    counts = gpu_health.reported_values(facts, "gpu.ecc_errors")
    bad = {i: f"{n} since the driver was loaded" for i, n in counts.items() if n and i not in reported_elsewhere}
    if not bad:
        gpu_health.require_reported(facts, "gpu.ecc_errors")
        return None
    return make_finding(
        f"uncorrected memory errors on {visible_gpus.describe_gpus(facts, bad, bad)}",
        found=(facts.fact("gpu.ecc_errors"),),
        needs=(Requirement("gpu.ecc_errors", "==0", cite=CITE),),
        so="the program that hits such an error is ended; a GPU on which they return is failing",
        fix=(
            *gpu_health.hide_gpus_steps(facts, bad),
            FixStep(
                f"drain it, then reset it: nvidia-smi --gpu-reset -i {gpu_health.join_indices(bad)}", note="needs root"
            ),
            FixStep("run dcgmi diag -r 3, and have the GPU replaced if errors return", note="needs root"),
        ),
    )
