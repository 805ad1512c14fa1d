"""The driver unloads the GPUs whenever no program uses them.

## What it checks
Whether persistence mode is on, for data-centre GPUs or machines with several GPUs. It is information: nothing
is broken. WSL has no such mode.

## Why it matters
Without persistence mode the driver shuts a GPU down when its last program ends and starts it again for the
next. Each start takes seconds, and settings such as power limits are lost. A display server that uses the GPU
prevents this.

## How to fix
Turn it on as root with ``nvidia-smi -pm 1``, or permanently with the nvidia-persistenced service that comes
with the driver.

## References
- NVIDIA Driver Persistence, Persistence Daemon
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import gpu_health, visible_gpus

CODE = "DRV013"
SEVERITY = "info"
READS = (*gpu_health.READS, "gpu.persistence", "driver.wsl")
REQUIRED_FACTS = ("gpu.count",)
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
    return make_finding(
        f"persistence mode is off on {visible_gpus.describe_gpus(facts, off)}: programs start slower",
        found=(facts.fact("gpu.persistence"),),
        needs=(Requirement("gpu.persistence", "on", level="optional", cite="NVIDIA Driver Persistence guide"),),
        so="the driver restarts the GPU for every program, which takes seconds",
        fix=(FixStep("turn it on: nvidia-smi -pm 1, or enable nvidia-persistenced", note="needs root"),),
    )
