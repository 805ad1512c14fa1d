"""One process or several, one machine or several, according to the job and the launcher's variables."""

from gpuready.model import Contract, Facts
from gpuready.rules import environment_variables, job_request, visible_gpus

READS = ("env.*", "job.wants", "job.gpus", *visible_gpus.READS)
RANK_FACTS = (
    "env.RANK",
    "env.LOCAL_RANK",
    "env.WORLD_SIZE",
    "env.LOCAL_WORLD_SIZE",
    "env.MASTER_PORT",
    "env.MASTER_ADDR",
)
"""Without any of them no launcher, and nobody by hand, has started ranks."""

NODE_COUNT_VARIABLES = ("NNODES", "SLURM_JOB_NUM_NODES", "SLURM_NNODES")
PARALLEL_WANTS = ("multi-gpu", "multi-node", "fsdp", "fsdp2", "tensor-parallel", "expert-parallel", "collectives")
NODE_RANK_FRAMEWORKS = ("roll",)
"""Frameworks in which RANK and WORLD_SIZE count nodes: ROLL's driver starts Ray with them."""


def integer_variable(facts: Facts, name: str) -> int | None:
    """Return a variable as an integer; None if it is unset or no integer."""
    return environment_variables.parse_integer(environment_variables.read_variable(facts, name))


def is_multi_node(facts: Facts, contract: Contract) -> bool:
    """Return whether the job runs on several machines."""
    if job_request.job_asks_for(facts, "multi-node"):
        return True
    if environment_variables.environment_unknown(facts):
        return False
    return any((integer_variable(facts, name) or 0) > 1 for name in NODE_COUNT_VARIABLES) or has_remote_ranks(
        facts, contract
    )


def has_remote_ranks(facts: Facts, contract: Contract) -> bool:
    """Return whether the launcher's variables state more ranks than this machine has."""
    world, here = integer_variable(facts, "WORLD_SIZE"), integer_variable(facts, "LOCAL_WORLD_SIZE")
    if contract.framework in NODE_RANK_FRAMEWORKS:
        return (world or 0) > 1
    return world is not None and here is not None and world > here > 0


def started_by_launcher(facts: Facts) -> bool:
    """Return whether the variables of a rank are set, by a launcher or by hand."""
    return not environment_variables.environment_unknown(facts) and any(
        environment_variables.read_variable(facts, name) for name in ("RANK", "LOCAL_RANK")
    )


def has_parallel_processes(facts: Facts) -> bool:
    """Return whether the job has, or may have here, several processes that communicate."""
    if job_request.job_asks_for(facts, *PARALLEL_WANTS) or (job_request.job_gpu_count(facts) or 0) > 1:
        return True
    if not environment_variables.environment_unknown(facts) and (integer_variable(facts, "WORLD_SIZE") or 0) > 1:
        return True
    return job_request.job_gpu_count(facts) is None and len(visible_gpus.list_visible_gpus(facts)) > 1
