"""The settings of the CUDA allocator stand in a variable that this torch does not read.

The caching allocator of torch took its settings from PYTORCH_CUDA_ALLOC_CONF until 2.8. From 2.9 on the
name is PYTORCH_ALLOC_CONF, for all kinds of accelerators; the old name is still read where the new one is
not set, with a warning. An older torch does not know the new name: what stands there has no effect, and
nothing says so. Jobs then run out of memory by fragmentation although expandable segments seem to be on.

It is a warning where settings have no effect: the new name with an old torch, or two names with different
values, of which only one counts. The old name with a new torch is a line of information. Setting both to
the same value is fine, and does for every version.
"""

from __future__ import annotations

from gpuready.catalog import torch as catalogue
from gpuready.model import Contract, Facts, Finding, FixStep, Requirement
from gpuready.rules import allocator_settings, environment_variables
from gpuready.rules.allocator_settings import NEW_VARIABLE, OLD_VARIABLE

CODE = "SYS012"
SEVERITY = "warning"
READS = allocator_settings.READS
BROKEN = {
    "env.names": (NEW_VARIABLE,),
    "env.PYTORCH_ALLOC_CONF": "expandable_segments:True",
    "package.torch": "2.8.0+cu128",
}
HEALTHY = BROKEN | {"package.torch": "2.10.0+cu128"}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if environment_variables.environment_unknown(facts):
        return None
    old, new = (
        environment_variables.read_variable(facts, OLD_VARIABLE),
        environment_variables.read_variable(facts, NEW_VARIABLE),
    )
    if not (old or new):
        return None
    version = facts.value("package.torch")
    if version is None or old == new:
        return None
    right = catalogue.allocator_variable(str(version))
    set_, idle = (new, old) if right == NEW_VARIABLE else (old, new)
    if not idle:
        return None
    wrong = OLD_VARIABLE if right == NEW_VARIABLE else NEW_VARIABLE
    deprecated = right == NEW_VARIABLE and not set_
    return Finding(
        CODE,
        "info" if deprecated else SEVERITY,
        f"{wrong} is the old name with torch {version}; it is still read"
        if deprecated
        else f"torch {version} does not read {wrong}" + (f", since {right} is set" if set_ else ""),
        found=(facts.fact(f"env.{wrong}"), facts.fact("package.torch")),
        needs=(Requirement(f"env.{right}", "*", level="recommended", cite="torch, c10/core/AllocatorConfig.h"),),
        so="torch warns once, and a later one may stop reading it"
        if deprecated
        else "those settings of the allocator have no effect, and nothing says so",
        fix=(FixStep(f"set {right} instead of {wrong}"),),
    )
