"""The job asks for bf16 and fp16 at once.

Mixed precision is one or the other. The Trainer of transformers refuses both: ``At most one of fp16 and
bf16 can be True, but not both``; frameworks that hand their configuration to it fail in the same place,
when arguments are read. Templates that turn both on, and a command line that adds one to what a file
already has, are the usual reasons.

It is a warning, because what is read as a wish here may be two things there: a type in which weights are
loaded (``torch_dtype``) and a precision in which is computed. Take one: bf16 from Ampere on, fp16 before.
Only frameworks on the Trainer are judged; others have a precision for each of their parts.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement
from gpuready.rules import job_request

CODE = "CAP011"
SEVERITY = "warning"
READS = ("job.wants",)
CONTRACT = {"framework": "transformers"}
BROKEN = {"job.wants": ("bf16", "fp16")}
HEALTHY = {"job.wants": ("bf16",)}
ON_TRAINER = ("transformers", "axolotl")


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms or contract.framework not in ON_TRAINER:
        return None
    if not (job_request.job_asks_for(facts, "bf16", "bfloat16") and job_request.job_asks_for(facts, "fp16", "float16")):
        return None
    return Finding(
        CODE,
        SEVERITY,
        "the job asks for bf16 and fp16 at once",
        found=(facts.fact("job.wants"),),
        needs=(
            Requirement(
                "job.wants",
                "bf16|fp16",
                level="recommended",
                cite="transformers/training_args.py: at most one of fp16 and bf16",
            ),
        ),
        so="the Trainer refuses the job when it reads its arguments, if both are meant for training",
        fix=(FixStep("take one of them: bf16 from Ampere on, fp16 before"),),
    )
