"""Two of the frameworks set one variable to different values.

## What it checks
Variables that several requested frameworks set unconditionally to different values. ColossalAI needs
CUDA_DEVICE_MAX_CONNECTIONS at 1, sglang under ROLL at 4; Axolotl and ROLL both set the CUDA allocator.

## Why it matters
In one process the framework that is imported last wins, and the other runs with its value.

## How to fix
Run each framework in its own processes. PKG008 covers sharing one environment.

## References
- The frameworks' requirements, with their citations in the finding
"""

from collections.abc import Iterable, Mapping

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import visible_gpus

CODE = "SYS017"
SEVERITY = "warning"
READS = ("requirements.*",)
REQUIRED_FACTS = ("requirements.variables",)
CONTRACT = {
    "variables": ({"name": "CUDA_DEVICE_MAX_CONNECTIONS", "access": "set", "value": "1", "cite": "initialize.py:10"},)
}
BROKEN = {"requirements.variables": {"other 2.0": {"CUDA_DEVICE_MAX_CONNECTIONS": "4"}}}
HEALTHY = {"requirements.variables": {"other 2.0": {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}}}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "requirements.variables" not in facts:
        return None  # no other framework was requested
    own_values = variables_set_by(contract)
    others: Mapping[str, Mapping[str, str]] = facts.value("requirements.variables") or {}
    conflicts = [
        (name, variable, value)
        for name, theirs in others.items()
        for variable, value in theirs.items()
        if name not in (contract.name, contract.framework) and own_values.get(variable, value) != value
    ]
    if not conflicts:
        return None
    variables = list(dict.fromkeys(variable for _, variable, _ in conflicts))
    names = visible_gpus.join_names(list(dict.fromkeys(name for name, *_ in conflicts)))
    cites = {variable.name: variable.cite for variable in contract.variables}
    return make_finding(
        f"set by {contract.framework} and to another value by {names}: {visible_gpus.join_names(variables)}",
        found=(facts.fact("requirements.variables"),),
        needs=tuple(
            Requirement(f"env.{v}", own_values[v], level="recommended", cite=f"{contract.name}: {cites[v]}")
            for v in variables
        ),
        so="in one process the framework imported last wins, and the other runs with its value",
        fix=(FixStep("run each framework in its own processes", safety="elsewhere"),),
    )


def variables_set_by(contract: Contract) -> dict[str, str]:
    """Return the variables and values that a contract sets unconditionally."""
    return {v.name: v.value for v in contract.variables if v.value and "set" in v.access and not v.when}


def variables_of_others(contract: Contract, contracts: Iterable[Contract]) -> dict[str, dict[str, str]]:
    """Return the value of ``requirements.variables`` for one of several contracts: what the others set, by name."""
    return {one.name: variables_set_by(one) for one in contracts if one.name != contract.name}
