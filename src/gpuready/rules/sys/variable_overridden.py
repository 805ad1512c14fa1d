"""A variable is set here, and the framework sets it to something else.

Some frameworks set environment variables when they are imported, whatever stands there: ColossalAI sets
CUDA_DEVICE_MAX_CONNECTIONS to 1, ROLL sets NCCL_NVLS_ENABLE to 0 on its workers. The value of the caller is
lost without a word, and who measures its effect measures nothing.

It is a warning, and only where the contract says that the framework's value wins; most frameworks set a
variable only where it is unset. To have it otherwise, set the variable again in the program, after the import
and before CUDA is used, or where the framework has a place for it in its configuration.
"""

from __future__ import annotations

from gpuready.model import Finding, Need, Step
from gpuready.rules import cards, shell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Variable

CODE = "SYS016"
SEVERITY = "warning"
READS = shell.READS
SIGNS = ()
CONTRACT = {
    "variables": (
        {
            "name": "CUDA_DEVICE_MAX_CONNECTIONS",
            "access": "set",
            "value": "1",
            "cite": "initialize.py:10",
            "traits": ("forced",),
        },
    )
}
BROKEN = {"env.names": ("CUDA_DEVICE_MAX_CONNECTIONS",), "env.CUDA_DEVICE_MAX_CONNECTIONS": "8"}
HEALTHY = BROKEN | {"env.CUDA_DEVICE_MAX_CONNECTIONS": "1"}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if shell.unseen(facts):
        return None
    lost = [variable for variable in _forced(facts, contract) if _differs(facts, variable)]
    if not lost:
        return None
    values = [f"{variable.name} to {variable.value}" for variable in lost]
    return Finding(
        CODE,
        SEVERITY,
        f"{contract.framework} sets {cards.listed(values)}, whatever is set here",
        found=tuple(facts.fact(f"env.{variable.name}") for variable in lost),
        needs=tuple(Need(f"env.{v.name}", v.value, level="recommended", cite=v.cite) for v in lost),
        so="the value that is set in this shell has no effect on the job",
        fix=tuple(
            Step(f"set {v.name} in the program, after {contract.framework} is imported, or leave it")
            for v in lost
        ),
    )


def _forced(facts: Facts, contract: Contract) -> list[Variable]:
    return [v for v in shell.in_force(facts, contract) if v.value and "forced" in v.traits]


def _differs(facts: Facts, variable: Variable) -> bool:
    return shell.value(facts, variable.name) not in (None, variable.value)
