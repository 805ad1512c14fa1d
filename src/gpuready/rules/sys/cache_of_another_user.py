"""The cache of torch.compile belongs to another user.

Compiled graphs are kept in /tmp/torchinductor_USER unless TORCHINDUCTOR_CACHE_DIR says otherwise. Anybody
can foresee that name. The folder may be there already and belong to somebody else: to root after one run
with sudo, to another account with the same name in a container, or to somebody who put it there on purpose.
torch then fails with ``Permission denied``, or, where the folder is open, runs code that another user can
change.

It is an error where the job asks for torch.compile and the folder has its usual name; a warning otherwise,
and for root, who may write everywhere. Set TORCHINDUCTOR_CACHE_DIR to a folder of your own, such as
~/.cache/torchinductor, or have the old one removed by its owner. A folder that does not exist yet is fine.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement
from gpuready.rules import capability_floors, environment_variables, job_request

CODE = "SYS020"
SEVERITY = "error"
READS = ("cache.inductor", "env.*", "job.wants")
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
    return Finding(
        CODE,
        SEVERITY if _compile_will_fail(facts) else "warning",
        f"the cache of torch.compile, {row.get('path')}, belongs to another user",
        found=(facts.fact("cache.inductor"),),
        needs=(Requirement("cache.inductor", "mine", cite=cite),),
        so="torch.compile cannot write there, or takes code from there that somebody else can change",
        fix=(FixStep("set TORCHINDUCTOR_CACHE_DIR to a folder of this user, such as ~/.cache/torchinductor"),),
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
