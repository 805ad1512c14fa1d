"""The driver no longer supports a GPU of this machine.

## What it checks
Whether the driver branch still supports each GPU. Branch 580 is the last for Maxwell, Pascal and Volta
(compute capability 5.0 to 7.0). It is an error if the job needs that GPU, else a warning. A GPU whose memory
the driver reports is supported.

## Why it matters
A newer driver ignores the card: nvidia-smi and CUDA do not list it, and the kernel log says ``supported
through the NVIDIA 580.xx Legacy drivers``. A distribution that follows the newest driver can cause this with
an update.

## How to fix
Install driver branch 580 and hold it. CUDA 13 has no code for these GPUs either, so use a torch built for
CUDA 12.

## References
- NVIDIA driver README, Supported NVIDIA GPU Products (supportedchips.html)
- wiki.nixos.org NVIDIA (legacy_580)
"""

from collections.abc import Callable

from gpuready.catalog import cuda as catalogue
from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding, versions
from gpuready.rules import gpu_health, visible_gpus

BranchLookup = Callable[[str], tuple[int | None, object]]


CODE = "DRV007"
SEVERITY = "error"
READS = (*gpu_health.READS, "gpu.capability", "gpu.memory", "driver.version")
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {
    "gpu.count": 1,
    "gpu.visible": (0,),
    "gpu.name": ("Tesla V100-SXM2-16GB",),
    "gpu.capability": ("7.0",),
    "driver.version": "590.48.01",
}
HEALTHY = BROKEN | {"driver.version": "580.95.05"}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms:
        return None
    last = driver_branch_bounds(facts, catalogue.last_driver_branch)
    if not last:
        return None
    driver = facts.value("driver.version")
    dropped = {i: b for i, b in last.items() if driver is not None and versions.major_version(driver) > b}
    if not dropped:
        return None
    branch, cite = min(dropped.values()), branch_bound_source(facts, dropped, catalogue.last_driver_branch)
    return make_finding(
        f"driver {driver} no longer supports {visible_gpus.describe_gpus(facts, dropped)}",
        found=tuple(facts.fact(key) for key in ("driver.version", "gpu.capability", "gpu.name")),
        needs=(Requirement("driver.version", f"<{branch + 1}", cite=cite),),
        so="the driver ignores the card: neither nvidia-smi nor CUDA lists it",
        fix=(
            FixStep(f"install driver branch {branch} and hold it", note="needs root"),
            *gpu_health.hide_gpus_steps(facts, dropped),
        ),
        severity=SEVERITY if gpu_health.leaves_too_few_gpus(facts, dropped) else "warning",
    )


def driver_branch_bounds(facts: Facts, bound: BranchLookup) -> dict[int, int]:
    """Return the driver branch that bounds each visible GPU; empty if the driver is known to drive them."""
    if not visible_gpus.list_visible_gpus(facts) or driver_opened_gpus(facts):
        return {}
    branches = {i: bound(str(c))[0] for i, c in visible_gpus.fact_per_gpu(facts, "gpu.capability").items()}
    return {index: branch for index, branch in branches.items() if branch is not None}


def driver_opened_gpus(facts: Facts) -> bool:
    """Return whether the driver has opened the GPUs: only the driver can read their memory size."""
    memory = facts.fact("gpu.memory")
    return bool(memory.value) and not memory.gap and memory.how == "read"


def branch_bound_source(facts: Facts, gpus: dict[int, int], bound: BranchLookup) -> str:
    """Return the source of the bound of the first of these GPUs."""
    cited = bound(str(visible_gpus.fact_per_gpu(facts, "gpu.capability")[min(gpus)]))[1]
    return str(cited[0] if isinstance(cited, (list, tuple)) else cited)
