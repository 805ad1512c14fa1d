"""A variable has a value that the framework does not accept.

## What it checks
Variables that the framework reads against the list of allowed values in its requirements, if their
condition holds. Case and spaces count.

## Why it matters
The framework refuses the value, ignores it with a warning, or silently reads it as something else.

## How to fix
Set the variable to one of the values in the finding, or unset it.

## References
- The framework's requirements, with their citations in the finding
"""

from gpuready.catalog.variables import is_settable
from gpuready.contracts import foreign_note
from gpuready.model import Contract, ContractVariable, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import environment_variables, visible_gpus

CODE = "SYS015"
SEVERITY = "warning"
READS = environment_variables.READS
CONTRACT = {
    "variables": (
        {
            "name": "MODEL_DOWNLOAD_TYPE",
            "access": "read and set",
            "allowed": ("MODELSCOPE", "HUGGINGFACE_HUB"),
            "cite": "checkpoint_manager.py:74",
        },
    )
}
BROKEN = {"env.names": ("MODEL_DOWNLOAD_TYPE",), "env.MODEL_DOWNLOAD_TYPE": "huggingface"}
HEALTHY = BROKEN | {"env.MODEL_DOWNLOAD_TYPE": "HUGGINGFACE_HUB"}
OTHER_RULES_VARIABLES = ("BUILD_EXT",)
"""Variables that have a rule of their own."""


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if environment_variables.environment_unknown(facts):
        return None
    wrong = [variable for variable in _restricted_variables(facts, contract) if _is_value_disallowed(facts, variable)]
    if not wrong:
        return None
    return make_finding(
        f"set to a value that {contract.framework} does not accept: {visible_gpus.join_names([v.name for v in wrong])}",
        found=tuple(facts.fact(f"env.{variable.name}") for variable in wrong),
        needs=tuple(Requirement(f"env.{v.name}", "|".join(v.allowed), level="recommended", cite=v.cite) for v in wrong),
        so=f"{contract.framework} refuses or ignores the value",
        fix=tuple(FixStep(_describe_fix(contract, variable)) for variable in wrong),
    )


def _describe_fix(contract: Contract, variable: ContractVariable) -> str:
    """Propose a value; of a contract file only a plain one, for a variable that cannot load code or redirect."""
    is_plain = is_settable(variable.name) and " " not in "".join(variable.allowed)
    if foreign_note(contract) and not is_plain:
        return f"unset {variable.name}, or give it one of these values yourself"
    return f"set {variable.name} to {' or '.join(variable.allowed)}, or unset it"


def _restricted_variables(facts: Facts, contract: Contract) -> list[ContractVariable]:
    own = [v for v in environment_variables.variables_in_force(facts, contract) if v.allowed and "read" in v.access]
    return [variable for variable in own if variable.name not in OTHER_RULES_VARIABLES]


def _is_value_disallowed(facts: Facts, variable: ContractVariable) -> bool:
    value = environment_variables.read_variable(facts, variable.name)
    return value is not None and value not in variable.allowed
