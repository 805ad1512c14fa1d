"""The build would start more compilers than the memory holds.

## What it checks
The number of parallel compiler jobs (MAX_JOBS, else the number of processors) against the available memory,
at about 2.5 GB per nvcc. It is a warning, and only if a build is asked for. torch ignores a MAX_JOBS that is
not a plain number.

## Why it matters
The kernel kills a compiler, and the build ends with ``Killed``, without mentioning memory. Some files of
flash-attn need several times as much.

## How to fix
Set MAX_JOBS to the number in the finding. flash-attn chooses its own value if the variable is unset.

## References
- torch/utils/cpp_extension.py, _get_num_workers
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import compilation

CODE = "BLD014"
SEVERITY = "warning"
READS = ("host.cores_usable", "memory.available", "memory.limit", *compilation.READS)
REQUIRED_FACTS = ("job.wants", "env.BUILD_EXT")
BROKEN = {
    "job.wants": ("build",),
    "env.MAX_JOBS": None,
    "host.cores_usable": 32,
    "memory.available": 16 * 10**9,
    "memory.limit": None,
}
HEALTHY = BROKEN | {"memory.available": 256 * 10**9}
BYTES_PER_JOB = 2_500_000_000
"""Approximate memory of one nvcc job."""


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if not compilation.build_requested(facts, contract):
        return None
    jobs, memory = _parallel_jobs(facts), _usable_memory(facts)
    if jobs is None or memory is None or jobs * BYTES_PER_JOB <= memory:
        return None
    fitting_jobs = max(1, memory // BYTES_PER_JOB)
    if fitting_jobs >= jobs:
        return None
    cite = "torch/utils/cpp_extension.py, _get_num_workers; about 2.5 GB for one nvcc"
    keys = ("host.cores_usable", "memory.available", "memory.limit", "env.MAX_JOBS")
    return make_finding(
        f"a build would start {jobs} compilers, but the memory is enough for about {fitting_jobs}",
        found=tuple(facts.fact(key) for key in keys),
        needs=(Requirement("env.MAX_JOBS", f"<={fitting_jobs}", level="recommended", cite=cite),),
        so="the kernel kills a compiler when memory runs out, and the build fails",
        fix=(FixStep(f"set MAX_JOBS={fitting_jobs}"),),
    )


def _parallel_jobs(facts: Facts) -> int | None:
    """Return the number of parallel jobs: MAX_JOBS, else one for each core."""
    stated = compilation.read_build_variable(facts, "MAX_JOBS") or ""
    if stated.isdecimal():
        return int(stated)
    cores = facts.value("host.cores_usable")
    return int(cores) if cores else None


def _usable_memory(facts: Facts) -> int | None:
    known = [facts.value(key) for key in ("memory.available", "memory.limit")]
    return min((int(size) for size in known if size is not None), default=None)
