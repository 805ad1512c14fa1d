"""The limit on open files is low for several processes.

## What it checks
The limit on open files (``ulimit -n``). Below 4096 is a warning if several GPUs or processes are used, below
1024 always.

## Why it matters
Each batch of a DataLoader worker, each connection between ranks and each dataset shard uses a file
descriptor. With the usual limit of 1024, a multi-GPU job fails after minutes or hours with ``Too many open
files`` or ``received 0 items of ancdata``.

## How to fix
Raise the limit before the job starts: ``ulimit -n 65536``, LimitNOFILE for a service, ``--ulimit
nofile=65536`` for a container. Or call ``torch.multiprocessing.set_sharing_strategy("file_system")``.

## References
- torch.multiprocessing, sharing strategies
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import job_topology

CODE = "SYS006"
SEVERITY = "warning"
READS = ("limit.nofile", *job_topology.READS)
BROKEN = {"limit.nofile": 1024, "gpu.count": 8, "gpu.visible": (0, 1, 2, 3, 4, 5, 6, 7)}
HEALTHY = BROKEN | {"limit.nofile": 1_048_576}
DEFAULT_LIMIT, ENOUGH = 1024, 4096


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "limit.nofile" not in facts:
        return None
    limit = facts.value("limit.nofile")
    if (
        limit is None
        or limit < 0
        or limit >= ENOUGH
        or (limit >= DEFAULT_LIMIT and not job_topology.has_parallel_processes(facts))
    ):
        return None
    cite = "torch.multiprocessing, sharing strategies: file_descriptor keeps one for each tensor"
    return make_finding(
        f"the limit of {limit} open files is low for several ranks and their workers",
        found=(facts.fact("limit.nofile"),),
        needs=(Requirement("limit.nofile", f">={ENOUGH}", level="recommended", cite=cite),),
        so="DataLoader workers and connections between ranks fail during a run",
        fix=(
            FixStep("run ulimit -n 65536 in the shell that starts the job"),
            FixStep("start the container with --ulimit nofile=65536", note="outside the container"),
        ),
    )
