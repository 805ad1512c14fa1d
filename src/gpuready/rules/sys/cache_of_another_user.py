"""The cache of torch.compile belongs to another user.

## What it checks
Whether /tmp/torchinductor_USER, or TORCHINDUCTOR_CACHE_DIR, belongs to another user. It is an error if the
job asks for torch.compile and the folder has its default name, else a warning. A folder that does not exist
yet is fine.

## Why it matters
torch fails with ``Permission denied``, or runs code that another user can change, because the default name is
predictable. It happens after one run with sudo, with another account of the same name in a container, or on
purpose.

## How to fix
Set TORCHINDUCTOR_CACHE_DIR to your own folder, such as ~/.cache/torchinductor, or have its owner remove the
old one.

## References
- torch/_inductor/runtime/cache_dir_utils.py, default_cache_dir
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import capability_floors, environment_variables, job_request

CODE = "SYS020"
SEVERITY = "error"
READS = ("cache.inductor", "env.*", "job.wants")
REQUIRED_FACTS = ("cache.inductor",)
BROKEN = {
    "job.wants": ("torch-compile",),
    "cache.inductor": {"path": "/tmp/torchinductor_ada", "uid": 0, "mine": False},
    "env.names": ("HOME",),
    "env.HOME": "/home/ada",
}
HEALTHY = BROKEN | {"cache.inductor": {"path": "/tmp/torchinductor_ada", "uid": 1000, "mine": True}}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cache.inductor" not in facts:
        return None
    row = facts.value("cache.inductor")
    if not row or row.get("mine") is not False:
        return None
    cite = "torch/_inductor/runtime/cache_dir_utils.py, default_cache_dir"
    return make_finding(
        f"the cache of torch.compile, {row.get('path')}, belongs to another user",
        found=(facts.fact("cache.inductor"),),
        needs=(Requirement("cache.inductor", "mine", cite=cite),),
        so="torch.compile cannot write there, or runs code that another user can change",
        fix=(FixStep("set TORCHINDUCTOR_CACHE_DIR to a folder of this user, such as ~/.cache/torchinductor"),),
        severity=SEVERITY if _compile_will_fail(facts) else "warning",
    )


def _compile_will_fail(facts: Facts) -> bool:
    """Return whether a job that compiles certainly fails: the default folder, and a user who is not root."""
    if not (
        capability_floors.feature_requested(facts, "torch_compile") or job_request.job_asks_for(facts, "flex-attention")
    ) or environment_variables.environment_unknown(facts):
        return False
    return (
        environment_variables.read_variable(facts, "TORCHINDUCTOR_CACHE_DIR") is None
        and environment_variables.read_variable(facts, "HOME") != "/root"
    )
