"""The driver lets go of the GPUs whenever nobody uses them.

Without persistence mode the driver shuts a GPU down when its last user ends, and starts it again for the
next. On a machine with several GPUs, or large ones, that takes seconds each time: every start of a program
waits, tools that look at the GPUs are slow, and settings such as power limits are lost in between. Where a
display server holds the GPU it does not happen.

Nothing is broken, so this is one line of information, and only for data-centre GPUs or where there is more
than one GPU. WSL has no such mode.

Turn it on with ``nvidia-smi -pm 1``, or lastingly by the service nvidia-persistenced, which comes with the
driver.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement
from gpuready.rules import gpu_health, visible_gpus

CODE = "DRV013"
SEVERITY = "info"
READS = (*gpu_health.READS, "gpu.persistence", "driver.wsl")
BROKEN = {
    "gpu.count": 2,
    "gpu.visible": (0, 1),
    "gpu.name": ("NVIDIA H100 80GB HBM3",) * 2,
    "gpu.persistence": ("off", "off"),
}
HEALTHY = BROKEN | {"gpu.persistence": ("on", "on")}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if gpu_health.is_not_applicable(facts, contract, "gpu.persistence") or not visible_gpus.list_visible_gpus(facts):
        return None
    off = [index for index, mode in gpu_health.reported_values(facts, "gpu.persistence").items() if mode == "off"]
    if not off or facts.value_if_known("driver.wsl"):
        gpu_health.require_reported(facts, "gpu.persistence")
        return None
    if facts.value("gpu.count") < 2 and gpu_health.gpu_market(facts, off[0]) != "datacenter":
        return None
    return Finding(
        CODE,
        SEVERITY,
        f"persistence mode is off on {visible_gpus.describe_gpus(facts, off)}: programs start slower for it",
        found=(facts.fact("gpu.persistence"),),
        needs=(Requirement("gpu.persistence", "on", level="optional", cite="NVIDIA Driver Persistence guide"),),
        so="the driver starts the GPU anew for every program, which takes seconds",
        fix=(FixStep("turn it on: nvidia-smi -pm 1, or enable nvidia-persistenced", note="needs root"),),
    )
