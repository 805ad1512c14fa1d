"""The machine has NVSwitches, and no fabric manager runs.

On HGX and DGX machines the NVLinks of the GPUs meet in switches, and a service, the fabric manager, sets
them up after every boot. Until it has done so, CUDA does not start on any of the GPUs: error 802, ``system
not yet initialized``, while nvidia-smi shows them all in good health. The service must be of exactly the
driver's version; an update of the driver alone leaves it behind, and it stops.

Nothing is said in a container: the service runs on the machine outside, and cannot be seen from within. Nor
where a process computes on one of the GPUs, which proves that CUDA starts, or where all of them are in MIG
mode, which does without the switches. GPUs joined by bridges, and single cards, need no fabric manager.

Install nvidia-fabricmanager of the driver's version and start it. What it complains of stands in
/var/log/fabricmanager.log.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement
from gpuready.rules import gpu_health

CODE = "DRV010"
SEVERITY = "error"
READS = (
    *("fabric.switches", "fabric.manager", "gpu.count", "gpu.mig", "gpu.processes"),
    *("driver.version", "os.container", "os.sandbox", "os.wsl", "job.wants"),
)
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
    what = "is not installed" if manager == "absent" else "does not run"
    return Finding(
        CODE,
        SEVERITY,
        f"the machine has {switches} NVSwitches, and the fabric manager {what}",
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
    start = FixStep("start it, now and at boot: systemctl enable --now nvidia-fabricmanager", note="needs root")
    if missing:
        return (FixStep(f"install nvidia-fabricmanager of {of}, and enable it", note="needs root"),)
    return (start, FixStep(f"if it does not stay up, install it in {of}", note="needs root"))
