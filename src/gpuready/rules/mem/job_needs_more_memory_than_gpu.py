"""The job, as its own file sets it up, needs more memory than the GPU has.

``gpuready check --config FILE`` reads the set-up of the job (model, micro-batch, length, precision, optimizer and the rest) and
predicts the peak of a step on the GPUs that are there, as ``gpuready fit`` does: the tape of the step, replayed through a model
of PyTorch's allocator. What is compared is the smallest reserve with which the step survives, and the context of CUDA beside
it, at least; with what a process can have of the GPU, at most. So the rule speaks only where there is no doubt; inside the
band of the prediction it says nothing, and ``gpuready fit FILE`` tells the numbers.

The job ends with CUDA out of memory, in the first or the second step. ``gpuready fit FILE`` gives the smallest change that fits.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


CODE = "MEM008"
SEVERITY = "error"
READS = ("job.fit", "job.config")
BROKEN = {
    "job.config": "train.yml",
    "job.fit": ({"gpus": (0,), "name": "Tesla T4", "needs": 32 << 30, "has": 15 << 30, "moment": "backward"},),
}
HEALTHY = BROKEN | {
    "job.fit": ({"gpus": (0,), "name": "NVIDIA H200", "needs": 32 << 30, "has": 139 << 30, "moment": "backward"},)
}
GIB = 1 << 30


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms or "job.fit" not in facts:
        return None
    rows = facts.value("job.fit") or ()
    short = [row for row in rows if row["needs"] > row["has"]]
    if not short:
        return None
    worst = max(short, key=lambda row: row["needs"] - row["has"])
    config = facts.value_if_known("job.config")
    where = ("--on", str(worst["on"])) if worst.get("on") else ()
    return Finding(
        CODE,
        SEVERITY,
        f"the job needs {worst['needs'] / GIB:.1f} GiB at its peak, and {_describe_short_gpus(worst)} at most {worst['has'] / GIB:.1f} GiB",
        found=tuple(facts.fact(key) for key in READS if key in facts),
        needs=(Requirement("gpu.free", f">={worst['needs'] / 1e9:.1f}GB", cite="the peak of a step, predicted"),),
        so=f"it ends with CUDA out of memory in the {worst['moment'] or 'step'}",
        fix=(FixStep("see the smallest change that fits", ("gpuready", "fit", str(config or "FILE"), *where), "safe"),),
    )


def _describe_short_gpus(row: dict[str, Any]) -> str:
    several = len(row["gpus"])
    return f"the GPU ({row['name']}) has" if several == 1 else f"each of {several} GPUs ({row['name']}) has"
