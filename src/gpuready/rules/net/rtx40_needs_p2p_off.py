"""The driver is too old for several GPUs of the RTX 40 series to talk directly.

GeForce RTX 40 cards cannot reach each other's memory, but drivers before 550.40.07 said that they could:
ranks hang or compute with wrong data. accelerate therefore refuses to start with such cards unless
NCCL_P2P_DISABLE and NCCL_IB_DISABLE are set: ``Using RTX 4000 series doesn't support faster communication
broadband via P2P or IB``. ``accelerate launch`` sets both by itself; torchrun and plain python do not.

It is an error inside a process that a launcher has started without them, and a warning before that, for
frameworks that stand on accelerate. Update the driver, or set both to 1; between such cards nothing is
lost.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, versions
from gpuready.rules import environment_variables, job_topology

CODE = "NET011"
SEVERITY = "warning"
READS = ("gpu.count", "gpu.name", "driver.version", "env.*", "job.wants", "job.gpus")
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
    return Finding(
        CODE,
        "error" if job_topology.started_by_launcher(facts) else SEVERITY,
        f"driver {driver} is too old for several RTX 40 cards to talk directly",
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
    )
