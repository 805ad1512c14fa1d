"""The CUDA allocator settings are in a variable that this torch does not read.

## What it checks
Whether the allocator settings are in the variable that the installed torch reads: PYTORCH_CUDA_ALLOC_CONF up
to 2.8, PYTORCH_ALLOC_CONF from 2.9 on. The new name with an old torch, or two names with different values, is
a warning. The old name with a new torch still works and is information. Setting both to the same value is
fine.

## Why it matters
Settings under the wrong name have no effect and nothing reports it. Jobs run out of memory by fragmentation
although expandable segments seem to be on.

## How to fix
Use the name in the finding, or set both.

## References
- torch, c10/core/AllocatorConfig.h
"""

from gpuready.catalog import torch as catalogue
from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import environment_variables
from gpuready.rules.environment_variables import NEW_VARIABLE, OLD_VARIABLE

CODE = "SYS012"
SEVERITY = "warning"
READS = environment_variables.ALLOCATOR_READS
REQUIRED_FACTS = ("env.PYTORCH_CUDA_ALLOC_CONF", "env.PYTORCH_ALLOC_CONF", "env.PYTORCH_HIP_ALLOC_CONF")
BROKEN = {
    "env.names": (NEW_VARIABLE,),
    "env.PYTORCH_ALLOC_CONF": "expandable_segments:True",
    "package.torch": "2.8.0+cu128",
}
HEALTHY = BROKEN | {"package.torch": "2.10.0+cu128"}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    variables = environment_variables.read_allocator_variables(facts)
    if variables is None or variables[0] == variables[1]:
        return None
    old, new, version = variables
    right = catalogue.allocator_variable(version)
    set_, idle = (new, old) if right == NEW_VARIABLE else (old, new)
    if not idle:
        return None
    wrong = OLD_VARIABLE if right == NEW_VARIABLE else NEW_VARIABLE
    deprecated = right == NEW_VARIABLE and not set_
    return make_finding(
        f"{wrong} is the old name with torch {version}; it is still read"
        if deprecated
        else f"torch {version} does not read {wrong}" + (f", since {right} is set" if set_ else ""),
        found=(facts.fact(f"env.{wrong}"), facts.fact("package.torch")),
        needs=(Requirement(f"env.{right}", "*", level="recommended", cite="torch, c10/core/AllocatorConfig.h"),),
        so="torch warns once, and a later release may stop reading it"
        if deprecated
        else "these allocator settings have no effect, and there is no message",
        fix=(FixStep(f"set {right} instead of {wrong}"),),
        severity="info" if deprecated else SEVERITY,
    )
