"""The driver no longer drives a GPU of this machine.

NVIDIA ends the support of old GPUs with a driver branch. R580 is the last for Maxwell, Pascal and Volta
(compute capability 5.0 to 7.0): a driver of branch 590 or newer does not touch a V100, P100 or GTX 1080. The
kernel's log says that the card is ``supported through the NVIDIA 580.xx Legacy drivers`` and will be
ignored; nvidia-smi does not list it. A distribution that follows the newest driver makes that happen with an
update.

It is an error where the job cannot do without such a GPU, and a warning where others are left. A GPU whose
memory the driver tells is driven, whatever the branch, and is no case of it.

Install a driver of branch 580 and keep it there. CUDA 13 has no code for these GPUs either, so take a torch
that is built for CUDA 12.
"""

from __future__ import annotations

from gpuready.catalog import cuda as catalogue
from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, versions
from gpuready.rules import gpu_health, visible_gpus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    BranchLookup = Callable[[str], tuple[int | None, object]]

CODE = "DRV007"
SEVERITY = "error"
READS = (*gpu_health.READS, "gpu.capability", "gpu.memory", "driver.version")
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
    return Finding(
        CODE,
        SEVERITY if gpu_health.leaves_too_few_gpus(facts, dropped) else "warning",
        f"the driver {driver} no longer drives {visible_gpus.describe_gpus(facts, dropped)}",
        found=tuple(facts.fact(key) for key in ("driver.version", "gpu.capability", "gpu.name")),
        needs=(Requirement("driver.version", f"<{branch + 1}", cite=cite),),
        so="the driver ignores the card: neither nvidia-smi nor CUDA lists it",
        fix=(
            FixStep(f"install a driver of branch {branch}, and hold it there", note="needs root"),
            *gpu_health.hide_gpus_steps(facts, dropped),
        ),
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
