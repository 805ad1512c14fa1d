"""More ranks are to run on this machine than CUDA shows GPUs.

## What it checks
LOCAL_WORLD_SIZE against the number of visible GPUs. Not reported: one GPU shown to each rank (srun
--gpus-per-task, Ray, a launcher that sets CUDA_VISIBLE_DEVICES), ROLL, which assigns devices to its workers,
and CPU jobs.

## Why it matters
A rank uses ``cuda:LOCAL_RANK``, which does not exist (``invalid device ordinal``), or two ranks share a GPU
and NCCL stops: ``Duplicate GPU detected``.

## How to fix
Start as many processes as there are GPUs: ``torchrun --nproc-per-node gpu``.

## References
- PyTorch documentation, torchrun: LOCAL_WORLD_SIZE
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import environment_variables, job_request, job_topology, visible_gpus

CODE = "NET012"
SEVERITY = "error"
READS = job_topology.READS
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {"env.names": ("LOCAL_WORLD_SIZE",), "env.LOCAL_WORLD_SIZE": "8", "gpu.count": 4, "gpu.visible": (0, 1, 2, 3)}
HEALTHY = BROKEN | {"env.LOCAL_WORLD_SIZE": "4"}
PER_TASK = ("CUDA_VISIBLE_DEVICES", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "RAY_JOB_ID")
"""Variables of launchers that may give each rank its own GPU."""


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if (
        "cuda" not in contract.platforms
        or contract.framework in job_topology.NODE_RANK_FRAMEWORKS
        or environment_variables.environment_unknown(facts)
    ):
        return None
    ranks = job_topology.integer_variable(facts, "LOCAL_WORLD_SIZE")
    if ranks is None or job_request.job_asks_for(facts, "cpu"):
        return None
    visible_count = len(visible_gpus.list_visible_gpus(facts))
    if (
        visible_count == 0
        or ranks <= visible_count
        or (visible_count == 1 and any(environment_variables.read_variable(facts, n) for n in PER_TASK))
    ):
        return None
    return make_finding(
        f"{ranks} ranks are to run on this machine, but CUDA shows {visible_count} GPU{'s' if visible_count > 1 else ''}",
        found=(facts.fact("env.LOCAL_WORLD_SIZE"), facts.fact("gpu.visible")),
        needs=(Requirement("gpu.count", f">={ranks}", cite="torchrun: LOCAL_WORLD_SIZE, one process for each GPU"),),
        so="the ranks without their own GPU stop, and the others wait for them",
        fix=(
            FixStep(f"start {visible_count} processes on this machine: torchrun --nproc-per-node {visible_count}"),
            FixStep("show more GPUs to the job: CUDA_VISIBLE_DEVICES, or the scheduler request"),
        ),
    )
