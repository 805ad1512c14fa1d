"""The launcher's variables contradict each other.

## What it checks
Whether RANK is below WORLD_SIZE, LOCAL_RANK below LOCAL_WORLD_SIZE, all are non-negative numbers, and RANK is
not set without WORLD_SIZE. ROLL uses RANK and WORLD_SIZE for its nodes, so they are not compared with the
local ones there.

## Why it matters
The process stops with a ValueError, or the other ranks wait for a rank that never comes. Usual reasons: old
values exported in a shell, or a template that was not filled in.

## How to fix
Unset all of them and start the job with a launcher (torchrun, srun, accelerate launch).

## References
- torch.distributed, environment variable initialization
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import environment_variables, job_topology, visible_gpus

CODE = "NET006"
SEVERITY = "error"
READS = ("env.*",)
REQUIRED_FACTS = job_topology.RANK_FACTS
BROKEN = {"env.names": ("RANK", "WORLD_SIZE"), "env.RANK": "8", "env.WORLD_SIZE": "8"}
HEALTHY = BROKEN | {"env.RANK": "7"}
PAIRS = (("RANK", "WORLD_SIZE"), ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
RANK_VARIABLES = tuple(name for pair in PAIRS for name in pair)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if environment_variables.environment_unknown(facts):
        return None
    there = [name for name in RANK_VARIABLES if environment_variables.read_variable(facts, name) is not None]
    wrong = [*_invalid_numbers(facts, there), *_rank_contradictions(facts), *_size_contradictions(facts, contract)]
    if not wrong:
        return None
    return make_finding(
        f"the launcher's variables contradict each other: {visible_gpus.join_names(wrong, 2)}",
        found=tuple(facts.fact(f"env.{name}") for name in there),
        needs=(
            Requirement(
                "env.RANK", "0 to WORLD_SIZE - 1", cite="torch.distributed, environment variable initialization"
            ),
        ),
        so="the process group cannot be created: this process stops, or the others wait for it",
        fix=(FixStep(f"unset {' '.join(there)} and start the job with torchrun or another launcher"),),
    )


def _invalid_numbers(facts: Facts, there: list[str]) -> list[str]:
    problems = []
    for name in there:
        count, text = (
            job_topology.integer_variable(facts, name),
            environment_variables.read_variable(facts, name) or "",
        )
        if count is None:
            problems.append(f"{name} is {environment_variables.quote_value(text)}, which is not a number")
        elif count < 0 or (count == 0 and name.endswith("SIZE")):
            problems.append(f"{name} is {count}")
    return problems


def _rank_contradictions(facts: Facts) -> list[str]:
    problems = []
    for rank, size in PAIRS:
        which, of = job_topology.integer_variable(facts, rank), job_topology.integer_variable(facts, size)
        if which is not None and of is not None and which >= of > 0:
            problems.append(f"{rank} is {which} and {size} {of}")
    if (
        environment_variables.read_variable(facts, "RANK") is not None
        and environment_variables.read_variable(facts, "WORLD_SIZE") is None
    ):
        problems.append("RANK is set and WORLD_SIZE is not")
    return problems


def _size_contradictions(facts: Facts, contract: Contract) -> list[str]:
    world, here = (
        job_topology.integer_variable(facts, "WORLD_SIZE"),
        job_topology.integer_variable(facts, "LOCAL_WORLD_SIZE"),
    )
    if contract.framework in job_topology.NODE_RANK_FRAMEWORKS or not world or not here or here <= world:
        return []
    return [f"LOCAL_WORLD_SIZE is {here} and WORLD_SIZE only {world}"]
