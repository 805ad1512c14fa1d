"""The variables of the launcher contradict each other.

A launcher tells each process which one it is: RANK among WORLD_SIZE, LOCAL_RANK among LOCAL_WORLD_SIZE on
its machine. A rank that is not below its size, a negative one, or text that is no number leaves a process
that no group can take in: it stops with a ValueError, or all others wait for a rank that never comes. RANK
without WORLD_SIZE is half a set. Old values that were exported in a shell, and templates that were not
filled in, are the usual reasons.

ROLL reads RANK and WORLD_SIZE as those of its nodes, so there they are not compared with the local ones.
Unset all of them and start with a launcher (torchrun, srun, accelerate launch), which sets them for each
process.
"""

from __future__ import annotations

from gpuready.model import Finding, Need, Step
from gpuready.rules import cards, nodes, shell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts

CODE = "NET006"
SEVERITY = "error"
READS = ("env.*",)
SIGNS = ("rank should be in the interval [0, ", "environment variable WORLD_SIZE expected, but not set")
BROKEN = {"env.names": ("RANK", "WORLD_SIZE"), "env.RANK": "8", "env.WORLD_SIZE": "8"}
HEALTHY = BROKEN | {"env.RANK": "7"}
PAIRS = (("RANK", "WORLD_SIZE"), ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
NAMES = tuple(name for pair in PAIRS for name in pair)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if shell.unseen(facts):
        return None
    there = [name for name in NAMES if shell.value(facts, name) is not None]
    wrong = [*_numbers(facts, there), *_ranks(facts), *_sizes(facts, contract)]
    if not wrong:
        return None
    return Finding(
        CODE,
        SEVERITY,
        f"the variables of the launcher contradict each other: {cards.listed(wrong, 2)}",
        found=tuple(facts.fact(f"env.{name}") for name in there),
        needs=(
            Need(
                "env.RANK",
                "0 to WORLD_SIZE - 1",
                cite="torch.distributed, environment variable initialization",
            ),
        ),
        so="the process group cannot be made: this process stops, or the others wait for it",
        fix=(Step(f"unset {' '.join(there)} and start the job with torchrun or another launcher"),),
    )


def _numbers(facts: Facts, there: list[str]) -> list[str]:
    found = []
    for name in there:
        count, text = nodes.number(facts, name), shell.value(facts, name) or ""
        if count is None:
            found.append(f"{name} is {shell.quoted(text)}, which is no number")
        elif count < 0 or (count == 0 and name.endswith("SIZE")):
            found.append(f"{name} is {count}")
    return found


def _ranks(facts: Facts) -> list[str]:
    found = []
    for rank, size in PAIRS:
        which, of = nodes.number(facts, rank), nodes.number(facts, size)
        if which is not None and of is not None and which >= of > 0:
            found.append(f"{rank} is {which} and {size} {of}")
    if shell.value(facts, "RANK") is not None and shell.value(facts, "WORLD_SIZE") is None:
        found.append("RANK is set and WORLD_SIZE is not")
    return found


def _sizes(facts: Facts, contract: Contract) -> list[str]:
    world, here = nodes.number(facts, "WORLD_SIZE"), nodes.number(facts, "LOCAL_WORLD_SIZE")
    if contract.framework in nodes.NODE_RANKS or not world or not here or here <= world:
        return []
    return [f"LOCAL_WORLD_SIZE is {here} and WORLD_SIZE only {world}"]
