"""The job asks for more GPUs than CUDA shows.

## What it checks
The number of GPUs in the job's configuration against the number that CUDA shows. A job over several nodes is
not checked, because its number may be the total. GPU001 covers no GPU at all, GPU003 dropped entries of
CUDA_VISIBLE_DEVICES.

## Why it matters
A launcher starts one process per requested GPU. The processes without a GPU end with ``invalid device
ordinal``, and the others wait for them until a timeout.

## How to fix
Lower the number in the configuration, make more GPUs visible (CUDA_VISIBLE_DEVICES, the container's limit,
the scheduler request), or use a larger machine.

## References
- PyTorch documentation, torchrun
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import gpu_health, job_request, visible_gpus

CODE = "GPU015"
SEVERITY = "error"
READS = (*gpu_health.READS, "visibility.cuda")
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {"job.gpus": 8, "gpu.count": 4, "gpu.visible": (0, 1, 2, 3)}
HEALTHY = BROKEN | {"job.gpus": 4}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if gpu_health.is_not_applicable(facts, contract, "job.gpus") or job_request.job_asks_for(facts, "multi-node"):
        return None
    wanted = job_request.job_gpu_count(facts) or 0
    visible_count = len(visible_gpus.list_visible_gpus(facts))
    dropped = len((facts.value_if_known("visibility.cuda") or {}).get("ignored") or ())
    if not visible_count or visible_count + dropped >= wanted:
        return None
    return make_finding(
        f"the job asks for {wanted} GPUs, and CUDA shows {visible_count}",
        found=tuple(facts.fact(key) for key in ("job.gpus", "gpu.visible", "gpu.count")),
        needs=(Requirement("gpu.count", f">={wanted}", cite=facts.fact("job.gpus").source or "the job"),),
        so="processes without a GPU end with invalid device ordinal, and the others wait for them",
        fix=tuple(_gpu_count_steps(facts, wanted, visible_count)),
    )


def _gpu_count_steps(facts: Facts, wanted: int, visible_count: int) -> list[FixStep]:
    fewer = FixStep(f"set {visible_count} in the job's configuration")
    if facts.value("gpu.count") >= wanted:
        names = visible_gpus.visible_devices_value(facts, range(wanted))
        return [FixStep(f"show more GPUs: CUDA_VISIBLE_DEVICES={names}"), fewer]
    return [fewer, FixStep(f"use a machine or a scheduler request with {wanted} GPUs", safety="elsewhere")]
