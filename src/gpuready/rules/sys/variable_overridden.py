"""A variable is set here, and the framework sets it to something else.

## What it checks
Variables whose value the framework overwrites at import, by its requirements: ColossalAI sets
CUDA_DEVICE_MAX_CONNECTIONS to 1, ROLL sets NCCL_NVLS_ENABLE to 0 on its workers. It is a warning. Most
frameworks only set a variable that is unset; those are not reported.

## Why it matters
Your value has no effect on the job, and nothing reports it.

## How to fix
Set the variable in the program, after the import and before CUDA is used, or in the framework's
configuration.

## References
- The framework's requirements, with their citations in the finding
"""

from gpuready.model import Contract, ContractVariable, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import environment_variables, visible_gpus

CODE = "SYS016"
SEVERITY = "warning"
READS = environment_variables.READS
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
    if environment_variables.environment_unknown(facts):
        return None
    lost = [variable for variable in _forced_variables(facts, contract) if _value_differs(facts, variable)]
    if not lost:
        return None
    values = [f"{variable.name} to {variable.value}" for variable in lost]
    return make_finding(
        f"{contract.framework} sets {visible_gpus.join_names(values)} and overrides the value set here",
        found=tuple(facts.fact(f"env.{variable.name}") for variable in lost),
        needs=tuple(Requirement(f"env.{v.name}", v.value, level="recommended", cite=v.cite) for v in lost),
        so="the value set in this shell has no effect on the job",
        fix=tuple(
            FixStep(f"set {v.name} in the program, after {contract.framework} is imported, or leave it") for v in lost
        ),
    )


def _forced_variables(facts: Facts, contract: Contract) -> list[ContractVariable]:
    return [v for v in environment_variables.variables_in_force(facts, contract) if v.value and "forced" in v.traits]


def _value_differs(facts: Facts, variable: ContractVariable) -> bool:
    return environment_variables.read_variable(facts, variable.name) not in (None, variable.value)
