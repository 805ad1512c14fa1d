"""The driver is older than a GPU of this machine.

## What it checks
Whether the driver branch is new enough for each GPU: 384 for Volta, 410 for Turing, 450 for A100, 455 for the
rest of Ampere, 520 for Ada and Hopper, 570 for Blackwell (compute capability 10.0 to 12.1). The branches of
Windows have other numbers. It is an error if the job needs that GPU, else a warning. A GPU whose memory the
driver reports is supported.

## Why it matters
The driver loads and ignores the card; nvidia-smi finds no device. It happens after a new card is added to an
old machine, and with images made before the card was released.

## How to fix
Install a driver of that branch or newer. Blackwell also needs the open kernel modules (DRV009).

## References
- NVIDIA driver README, Supported NVIDIA GPU Products (supportedchips.html)
- docs.nvidia.com, CUDA Toolkit, Driver, and Architecture Matrix
"""

from gpuready.catalog import cuda as catalogue
from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding, versions
from gpuready.rules import gpu_health, visible_gpus
from gpuready.rules.drv.driver_dropped_gpu import BranchLookup, branch_bound_source, driver_branch_bounds

CODE = "DRV008"
SEVERITY = "error"
READS = (*gpu_health.READS, "gpu.capability", "gpu.memory", "driver.version", "os.system")
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {
    "gpu.count": 1,
    "gpu.visible": (0,),
    "gpu.name": ("NVIDIA GeForce RTX 5090",),
    "gpu.capability": ("12.0",),
    "driver.version": "550.144.03",
}
HEALTHY = BROKEN | {"driver.version": "570.124.06"}

OPEN_MODULES_BRANCH = 570
"""GPUs that came with this branch work with the open kernel modules only."""


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms:
        return None
    first = driver_branch_bounds(facts, _first_branch_here(facts))
    if not first:
        return None
    driver = facts.value("driver.version")
    unknown = {i: b for i, b in first.items() if driver is not None and versions.major_version(driver) < b}
    if not unknown:
        return None
    branch = max(unknown.values())
    cite = branch_bound_source(facts, unknown, _first_branch_here(facts))
    modules = " with open kernel modules" if branch >= OPEN_MODULES_BRANCH else ""
    return make_finding(
        f"driver {driver} is older than {visible_gpus.describe_gpus(facts, unknown)}",
        found=tuple(facts.fact(key) for key in ("driver.version", "gpu.capability", "gpu.name")),
        needs=(Requirement("driver.version", f">={branch}", cite=cite),),
        so="the driver ignores the card: neither nvidia-smi nor CUDA lists it",
        fix=(
            FixStep(f"install driver {branch} or newer{modules}, and reboot", note="needs root"),
            *gpu_health.hide_gpus_steps(facts, unknown),
        ),
        severity=SEVERITY if gpu_health.leaves_too_few_gpus(facts, unknown) else "warning",
    )


def _first_branch_here(facts: Facts) -> BranchLookup:
    """Return the lookup of the first branch for a capability on this system."""
    system = facts.value_if_known("os.system")
    return lambda capability: catalogue.first_driver_branch(capability, system)
