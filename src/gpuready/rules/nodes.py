"""One process or several, one machine or several, according to the job and the launcher's variables."""

from __future__ import annotations

from gpuready.rules import cards, job, shell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts

READS = ("env.*", "job.wants", "job.gpus", *cards.READS)

SEVERAL_NODES = ("NNODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES")
PARALLEL = ("multi-gpu", "multi-node", "fsdp", "fsdp2", "tensor-parallel", "expert-parallel", "collectives")
NODE_RANKS = ("roll",)
"""Frameworks in which RANK and WORLD_SIZE count nodes: ROLL's driver starts Ray with them."""


def number(facts: Facts, name: str) -> int | None:
    """Return a variable as an integer; None if it is unset or no integer."""
    return shell.number(shell.value(facts, name))


def several(facts: Facts, contract: Contract) -> bool:
    """Return whether the job runs on several machines."""
    if job.asks(facts, "multi-node"):
        return True
    if shell.unseen(facts):
        return False
    return any((number(facts, name) or 0) > 1 for name in SEVERAL_NODES) or spread(facts, contract)


def spread(facts: Facts, contract: Contract) -> bool:
    """Return whether the launcher's variables state more ranks than this machine has."""
    world, here = number(facts, "WORLD_SIZE"), number(facts, "LOCAL_WORLD_SIZE")
    if contract.framework in NODE_RANKS:
        return (world or 0) > 1
    return world is not None and here is not None and world > here > 0


def launched(facts: Facts) -> bool:
    """Return whether the variables of a rank are set, by a launcher or by hand."""
    return not shell.unseen(facts) and any(shell.value(facts, name) for name in ("RANK", "LOCAL_RANK"))


def parallel(facts: Facts) -> bool:
    """Return whether the job has, or may have here, several processes that communicate."""
    if job.asks(facts, *PARALLEL) or (job.gpus(facts) or 0) > 1:
        return True
    if not shell.unseen(facts) and (number(facts, "WORLD_SIZE") or 0) > 1:
        return True
    return job.gpus(facts) is None and len(cards.shown(facts)) > 1
