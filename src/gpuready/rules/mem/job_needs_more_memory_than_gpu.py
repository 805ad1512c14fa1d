"""The job, as configured, needs more memory than the GPU has.

## What it checks
The predicted peak of a training step (model, micro-batch, sequence length, precision, optimizer, from
``gpuready check --config FILE``) against what a process can use of the GPU. The lower end of the prediction
is compared with the most that the GPU can offer, so the rule fires only if there is no doubt. If it is too
close to call, nothing is reported.

## Why it matters
The job ends with CUDA out of memory in the first or second step.

## How to fix
``gpuready fit FILE`` shows the numbers and the smallest change that fits.

## References
- gpuready guide: fit (docs/how-to/fit.md)
"""

from typing import Any

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding

CODE = "MEM008"
SEVERITY = "error"
READS = ("job.fit", "job.config")
REQUIRED_FACTS = ("job.fit",)
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
    return make_finding(
        f"the job needs {worst['needs'] / GIB:.1f} GiB at its peak, but {_describe_short_gpus(worst)} at most {worst['has'] / GIB:.1f} GiB",
        found=tuple(facts.fact(key) for key in READS if key in facts),
        needs=(Requirement("gpu.free", f">={worst['needs'] / 1e9:.1f}GB", cite="the peak of a step, predicted"),),
        so=f"the job fails with CUDA out of memory in the {worst['moment'] or 'step'}",
        fix=(
            FixStep("show the smallest change that fits", ("gpuready", "fit", str(config or "FILE"), *where), "safe"),
        ),
    )


def _describe_short_gpus(row: dict[str, Any]) -> str:
    several = len(row["gpus"])
    return f"the GPU ({row['name']}) has" if several == 1 else f"each of {several} GPUs ({row['name']}) has"
