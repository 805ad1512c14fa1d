"""The limit on open files is low for several processes.

Every batch that a DataLoader worker hands over, every connection between ranks and every shard of a dataset
takes a file descriptor. Many systems allow a process 1024; a job on several GPUs with a few workers each gets
there after minutes or hours: ``Too many open files``, or ``received 0 items of ancdata``, which does not say
so.

It is a warning below 4096 where several GPUs or processes are in play, and below 1024 everywhere. Raise the
limit before the job starts: ``ulimit -n 65536`` in the shell, LimitNOFILE for a service, ``--ulimit
nofile=65536`` for a container. Or share tensors by name instead of by descriptor:
``torch.multiprocessing.set_sharing_strategy("file_system")``.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement
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
    return Finding(
        CODE,
        SEVERITY,
        f"a process may open {limit} files, which several ranks and their workers use up",
        found=(facts.fact("limit.nofile"),),
        needs=(Requirement("limit.nofile", f">={ENOUGH}", level="recommended", cite=cite),),
        so="DataLoader workers and connections between ranks fail in the middle of a run",
        fix=(
            FixStep("run ulimit -n 65536 in the shell that starts the job"),
            FixStep("start the container with --ulimit nofile=65536", note="outside the container"),
        ),
    )
