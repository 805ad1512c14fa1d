"""The driver is older than a GPU of this machine.

## What it checks
Whether the driver branch is new enough for each GPU. Blackwell (compute capability 10.0 to 12.1: B200, B300,
RTX 50, RTX PRO 6000) needs branch 570. It is an error if the job needs that GPU, else a warning. A GPU whose
memory the driver reports is supported.

## Why it matters
The driver loads and ignores the card; nvidia-smi finds no device. It happens after a new card is added to an
old machine, and with images made before the card was released.

## How to fix
Install a driver of that branch or newer. Blackwell also needs the open kernel modules (DRV009).

## References
- NVIDIA driver README, Supported NVIDIA GPU Products (supportedchips.html)
- CUDA 12.8 release notes (R570, first release with Blackwell)
"""

from __future__ import annotations

from gpuready.catalog import cuda as catalogue
from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, versions
from gpuready.rules import gpu_health, visible_gpus
from gpuready.rules.drv.driver_dropped_gpu import branch_bound_source, driver_branch_bounds

CODE = "DRV008"
SEVERITY = "error"
READS = (*gpu_health.READS, "gpu.capability", "gpu.memory", "driver.version")
BROKEN = {
    "gpu.count": 1,
    "gpu.visible": (0,),
    "gpu.name": ("NVIDIA GeForce RTX 5090",),
    "gpu.capability": ("12.0",),
    "driver.version": "550.144.03",
}
HEALTHY = BROKEN | {"driver.version": "570.124.06"}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms:
        return None
    first = driver_branch_bounds(facts, catalogue.first_driver_branch)
    if not first:
        return None
    driver = facts.value("driver.version")
    unknown = {i: b for i, b in first.items() if driver is not None and versions.major_version(driver) < b}
    if not unknown:
        return None
    branch = max(unknown.values())
    cite = branch_bound_source(facts, unknown, catalogue.first_driver_branch)
    return Finding(
        CODE,
        SEVERITY if gpu_health.leaves_too_few_gpus(facts, unknown) else "warning",
        f"driver {driver} is older than {visible_gpus.describe_gpus(facts, unknown)}",
        found=tuple(facts.fact(key) for key in ("driver.version", "gpu.capability", "gpu.name")),
        needs=(Requirement("driver.version", f">={branch}", cite=cite),),
        so="the driver ignores the card: neither nvidia-smi nor CUDA lists it",
        fix=(
            FixStep(f"install driver {branch} or newer with open kernel modules, and reboot", note="needs root"),
            *gpu_health.hide_gpus_steps(facts, unknown),
        ),
    )
