"""A stale lock may block the extensions that torch compiles on first use.

## What it checks
Whether a file named ``lock`` exists in the folder of extensions compiled on first use (DeepSpeed ops,
ColossalAI kernels). It is a warning, because a build may be running now.

## Why it matters
One process builds while the others wait for the lock. A build that was killed by the OOM killer, a time limit
or Ctrl-C leaves the lock, and every later process waits forever. Newer torch releases warn that they wait.

## How to fix
If no build is running, remove the file. The next process then builds what is missing.

## References
- torch/utils/file_baton.py
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import visible_gpus

CODE = "BLD015"
SEVERITY = "warning"
READS = ("cache.locks",)
REQUIRED_FACTS = ("cache.locks",)
BROKEN = {"cache.locks": ("/home/u/.cache/torch_extensions/py312_cu128/fused_adam/lock",)}
HEALTHY = {"cache.locks": ()}
CITE = "torch/utils/file_baton.py: wait() ends when the file is gone"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    locks = [str(path) for path in facts.value("cache.locks") or ()]
    if not locks:
        return None
    return make_finding(
        f"lock file in the cache of compiled extensions: {visible_gpus.join_names(locks, 3)}",
        found=(facts.fact("cache.locks"),),
        needs=(Requirement("cache.locks", "none", level="recommended", cite=CITE),),
        so="unless a build is running, every job that loads this extension waits forever",
        fix=tuple(_remove_lock_step(path) for path in locks),
    )


def _remove_lock_step(path: str) -> FixStep:
    return FixStep(f"remove {path} if no build is running", ("rm", "--", path), "ask")
