"""A lock was left among the extensions that torch compiles on first use.

Extensions that are compiled on first use (DeepSpeed's ops, ColossalAI's kernels, many research codes) are
kept in a folder of the cache, with a file called ``lock`` while one process builds and the others wait.
Whoever is killed in the middle, by the OOM killer, a job's time limit or Ctrl-C, leaves it there; and every
later process waits for it, without a word and for ever. Newer releases of torch warn that they wait.

It is a warning: a build may be going on this moment. Where none is, remove the file; the next process then
builds what is missing.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement
from gpuready.rules import visible_gpus

CODE = "BLD015"
SEVERITY = "warning"
READS = ("cache.locks",)
BROKEN = {"cache.locks": ("/home/u/.cache/torch_extensions/py312_cu128/fused_adam/lock",)}
HEALTHY = {"cache.locks": ()}
CITE = "torch/utils/file_baton.py: wait() ends when the file is gone"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    locks = [str(path) for path in facts.value("cache.locks") or ()]
    if not locks:
        return None
    return Finding(
        CODE,
        SEVERITY,
        f"a lock lies in the cache of compiled extensions: {visible_gpus.join_names(locks, 3)}",
        found=(facts.fact("cache.locks"),),
        needs=(Requirement("cache.locks", "none", level="recommended", cite=CITE),),
        so="unless a build is going on now, every job that loads this extension waits for ever",
        fix=tuple(_remove_lock_step(path) for path in locks),
    )


def _remove_lock_step(path: str) -> FixStep:
    return FixStep(f"remove {path}, once no build is running", ("rm", "--", path), "ask")
