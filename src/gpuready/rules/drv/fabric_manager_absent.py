"""The machine has NVSwitches, and no fabric manager runs.

## What it checks
Whether the nvidia-fabricmanager service runs on a machine with NVSwitches (HGX, DGX). It is not checked in a
container, where the service is not visible; when a process already computes on a GPU; or when all GPUs are in
MIG mode. GPUs joined by bridges need no fabric manager.

## Why it matters
Until the service has configured the switches, CUDA starts on no GPU: error 802, ``system not yet
initialized``, while nvidia-smi looks normal. The service must have exactly the driver's version; a driver
update alone makes it stop.

## How to fix
Install nvidia-fabricmanager in the driver's version and start it: ``systemctl enable --now
nvidia-fabricmanager``. Its messages are in /var/log/fabricmanager.log.

## References
- NVIDIA Fabric Manager User Guide
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import gpu_health

CODE = "DRV010"
SEVERITY = "error"
READS = (
    *("fabric.switches", "fabric.manager", "gpu.count", "gpu.mig", "gpu.processes"),
    *("driver.version", "os.container", "os.sandbox", "os.wsl", "job.wants"),
)
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {"gpu.count": 8, "fabric.switches": 4, "fabric.manager": "installed", "driver.version": "580.95.05"}
HEALTHY = BROKEN | {"fabric.manager": "running"}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if gpu_health.is_not_applicable(facts, contract, "fabric.switches", "fabric.manager") or not facts.value(
        "gpu.count"
    ):
        return None
    if gpu_health.is_in_container(facts) or facts.value_if_known("os.sandbox") or facts.value_if_known("os.wsl"):
        return None
    switches = facts.value("fabric.switches")
    if not switches or _works_without_manager(facts):
        return None
    manager = facts.value("fabric.manager")
    if manager == "running":
        return None
    what = "is not installed" if manager == "absent" else "is not running"
    return make_finding(
        f"the machine has {switches} NVSwitches, but the fabric manager {what}",
        found=(facts.fact("fabric.switches"), facts.fact("fabric.manager")),
        needs=(Requirement("fabric.manager", "running", cite="NVIDIA Fabric Manager User Guide"),),
        so="CUDA starts on none of the GPUs: error 802, system not yet initialized",
        fix=_fabric_manager_steps(facts, manager == "absent"),
    )


def _works_without_manager(facts: Facts) -> bool:
    """Return whether CUDA is known to start anyway, or the GPUs do not use the switches."""
    modes = facts.value_if_known("gpu.mig") or ()
    return bool(facts.value_if_known("gpu.processes")) or (bool(modes) and all(mode == "on" for mode in modes))


def _fabric_manager_steps(facts: Facts, missing: bool) -> tuple[FixStep, ...]:
    version = facts.value_if_known("driver.version")
    of = f"version {version}, which is the driver's" if version else "the driver's version"
    start = FixStep("start it now and at boot: systemctl enable --now nvidia-fabricmanager", note="needs root")
    if missing:
        return (FixStep(f"install nvidia-fabricmanager of {of}, and enable it", note="needs root"),)
    return (start, FixStep(f"if it stops again, install {of}", note="needs root"))
