"""No versions fit this machine together.

## What it checks
On a machine that is only described (``check --on h100 --as driver=550.54``), whether any torch, CUDA and Python of
the catalogue satisfies the framework, the machine and the flags together: the search that ``gpuready plan`` makes.

## Why it matters
Each value may be fine alone. A driver of CUDA 12 and a framework whose wheel loads CUDA 13 both exist, but no
environment has both.

## How to fix
``gpuready plan`` with the same words lists the changes that make it possible: another driver, system, Python or
version.

## References
- The conflict, with its citations in the finding
"""

from gpuready.model import Contract, Fact, Facts, Finding, FixStep, Requirement, make_finding

CODE = "PKG041"
SEVERITY = "error"
COMPARED_FACTS = (
    "driver.version", "gpu.capability", "os.glibc", "os.system", "os.version", "package.torch", "platform.name",
    "python.version",
)  # fmt: skip
READS = ("requirements.conflict", *COMPARED_FACTS)
REQUIRED_FACTS = ("requirements.conflict",)
BROKEN = {
    "driver.version": "550.54.15",
    "requirements.conflict": {
        "says": "driver 550.54.15 starts programs of CUDA 12, and the wheel of vllm 0.32.0 loads CUDA 13",
        "needs": ({"key": "driver.version", "want": ">=580.65.06", "cite": "CUDA 13.4 release notes"},),
    },
}
HEALTHY = {"requirements.conflict": None}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "requirements.conflict" not in facts:
        return None
    conflict = facts.value("requirements.conflict")
    if not conflict:
        return None
    needs = tuple(Requirement(n["key"], n["want"], cite=n["cite"]) for n in conflict["needs"])
    return make_finding(
        f"no known versions fit {contract.name} here: {conflict['says']}",
        found=_stated_facts(facts, needs) or (facts.fact("requirements.conflict"),),
        needs=needs or (Requirement("package.torch", "*", cite=contract.origin),),
        so="no environment for it can be made on this machine",
        fix=(FixStep(_describe_fix(conflict, contract), safety="elsewhere"),),
    )


def _describe_fix(conflict: dict[str, object], contract: Contract) -> str:
    if conflict.get("fix"):
        return f"ask for {conflict['fix']}: with it uv resolves the rest as it is"
    return f"use what fits: `gpuready plan {contract.framework}` with the same flags lists what helps"


def _stated_facts(facts: Facts, needs: tuple[Requirement, ...]) -> tuple[Fact, ...]:
    """What is known of the things that the needs are about."""
    keys = dict.fromkeys(need.key for need in needs if need.key in COMPARED_FACTS)
    return tuple(facts.fact(key) for key in keys if facts.value_if_known(key))
