"""The driver is too old for several RTX 40 GPUs in one job.

## What it checks
Whether several GeForce RTX 40 cards are used with a driver before 550.40.07 and without NCCL_P2P_DISABLE and
NCCL_IB_DISABLE, for frameworks that use accelerate. It is an error in a process that a launcher started
without them, else a warning.

## Why it matters
These cards cannot access each other's memory, but older drivers report that they can: ranks hang or compute
with wrong data. accelerate refuses to start: ``Using RTX 4000 series doesn't support faster communication
broadband via P2P or IB``. ``accelerate launch`` sets both variables; torchrun and plain python do not.

## How to fix
Update the driver, or set both variables to 1. Nothing is lost between such cards.

## References
- accelerate/utils/environment.py, check_cuda_p2p_ib_support
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding, versions
from gpuready.rules import environment_variables, job_topology

CODE = "NET011"
SEVERITY = "warning"
READS = ("gpu.count", "gpu.name", "driver.version", "env.*", "job.wants", "job.gpus")
REQUIRED_FACTS = ("gpu.count",)
CONTRACT = {"framework": "transformers"}
BROKEN = {
    "gpu.count": 2,
    "gpu.name": ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"),
    "driver.version": "535.104.05",
    "env.names": (),
}
HEALTHY = BROKEN | {"driver.version": "550.54.14"}
FLOOR = "550.40.07"
FRAMEWORKS = ("transformers", "axolotl")
SWITCHES = ("NCCL_P2P_DISABLE", "NCCL_IB_DISABLE")


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if (
        contract.framework not in FRAMEWORKS
        or environment_variables.environment_unknown(facts)
        or (facts.value("gpu.count") or 0) < 2
    ):
        return None
    # accelerate runs nvidia-smi, which lists all GPUs regardless of CUDA_VISIBLE_DEVICES.
    if not any("RTX 40" in str(name) for name in facts.value("gpu.name") or ()):
        return None
    driver = facts.value("driver.version")
    if driver is None or versions.compare_versions(str(driver), FLOOR) >= 0:
        return None
    if all(facts.value(f"env.{name}") is not None for name in SWITCHES):
        return None
    return make_finding(
        f"driver {driver} is too old for several RTX 40 cards in one job",
        found=tuple(facts.fact(key) for key in ("driver.version", "gpu.name")),
        needs=(
            Requirement(
                "driver.version",
                f">={FLOOR}",
                level="recommended",
                cite="accelerate/utils/environment.py, check_cuda_p2p_ib_support",
            ),
        ),
        so="accelerate stops with a NotImplementedError, unless accelerate launch starts the job",
        fix=(
            FixStep("set NCCL_P2P_DISABLE=1 and NCCL_IB_DISABLE=1, or start with accelerate launch"),
            FixStep(f"install driver {FLOOR} or newer and reboot", note="needs root"),
        ),
        severity="error" if job_topology.started_by_launcher(facts) else SEVERITY,
    )
