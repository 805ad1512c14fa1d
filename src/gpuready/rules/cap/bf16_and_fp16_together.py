"""The job asks for bf16 and fp16 at once.

## What it checks
Whether the job asks for both bf16 and fp16, for frameworks that use the Trainer of transformers. It is a
warning, because one may be the type of the weights (``torch_dtype``) and the other the precision of the
computation.

## Why it matters
The Trainer refuses: ``At most one of fp16 and bf16 can be True, but not both``. Usual reasons: a template
that turns both on, or a command line that adds one to the file.

## How to fix
Choose one: bf16 from Ampere on, fp16 on older GPUs.

## References
- transformers/training_args.py
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import job_request

CODE = "CAP011"
SEVERITY = "warning"
READS = ("job.wants",)
REQUIRED_FACTS = ("job.wants",)
CONTRACT = {"framework": "transformers"}
BROKEN = {"job.wants": ("bf16", "fp16")}
HEALTHY = {"job.wants": ("bf16",)}
ON_TRAINER = ("transformers", "axolotl")


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms or contract.framework not in ON_TRAINER:
        return None
    if not (job_request.job_asks_for(facts, "bf16", "bfloat16") and job_request.job_asks_for(facts, "fp16", "float16")):
        return None
    return make_finding(
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
        so="the Trainer refuses the job if both are meant for training",
        fix=(FixStep("choose one: bf16 from Ampere on, fp16 on older GPUs"),),
    )
