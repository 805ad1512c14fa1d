"""The variable BUILD_EXT is not a number.

## What it checks
Whether BUILD_EXT is an integer. ColossalAI's setup.py converts it first: 1 builds the kernels during the
install, any other number leaves them to the first use. It is an error if the framework is still to be
installed or a build is asked for, else information.

## Why it matters
Any other text (``true``, ``yes``, an empty value) raises a ValueError, which pip shows as a failure to get
the requirements of the package.

## How to fix
Set it to 1 or 0, or unset it.

## References
- ColossalAI, setup.py
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import compilation, job_request

CODE = "BLD017"
SEVERITY = "error"
READS = ("env.BUILD_EXT", "package.*", "job.wants")
REQUIRED_FACTS = ("env.BUILD_EXT",)
CONTRACT = {
    "framework": "colossalai",
    "distribution": "colossalai",
    "variables": ({"name": "BUILD_EXT", "access": "read", "allowed": ("0", "1"), "cite": "setup.py:16"},),
}
BROKEN = {"env.BUILD_EXT": "true", "package.colossalai": None}
HEALTHY = {"env.BUILD_EXT": "1", "package.colossalai": None}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    read = compilation.find_contract_variable(contract, "BUILD_EXT")
    value = compilation.read_build_variable(facts, "BUILD_EXT") if read else None
    if read is None or value is None or _is_integer(value):
        return None
    own = f"package.{contract.distribution or contract.framework}"
    is_error = job_request.job_asks_for(facts, "build") or facts.value(own) is None
    return make_finding(
        f"the variable BUILD_EXT={value} is not a number",
        found=(facts.fact("env.BUILD_EXT"), facts.fact(own)),
        needs=(Requirement("env.BUILD_EXT", "0|1", cite=read.cite or "setup.py: int(os.environ['BUILD_EXT'])"),),
        so="the install stops with a ValueError",
        fix=(FixStep("set BUILD_EXT=1 to build the kernels during the install, or unset it"),),
        severity=SEVERITY if is_error else "info",
    )


def _is_integer(text: str) -> bool:
    try:
        int(text)
    except ValueError:
        return False
    return True
