"""A proof ran and gave a wrong result.

## What it checks
Whether each capability that ``gpuready prove`` executed in the target Python gave the right numbers, compared
with a float64 reference or exact values, without an exception. A capability that could not be executed is
CAP016. It is an error if the framework requires it or the job asks for it, else a warning.

## Why it matters
A job that does the same fails or computes wrong results.

## How to fix
The finding names the step and has the output. If the output matches a known cause, its fix is shown.

## References
- gpuready guide: prove (docs/how-to/prove.md)
"""

from gpuready.model import Contract, Facts, Finding
from gpuready.rules import proof_results

CODE = "CAP013"
SEVERITY = "error"
READS = proof_results.READS
REQUIRED_FACTS = ("proof.results",)
CONTRACT = {"capabilities": ({"name": "bf16", "level": "required"},)}
BROKEN, HEALTHY = proof_results.proof_examples("failed", "product_error is 0.5, and has to be <= 0.012")


def judge(facts: Facts, contract: Contract) -> Finding | None:
    so = "it failed in the step: {}; a job that does the same fails"
    return proof_results.judge_proofs(facts, contract, "failed", "wrong result", so)
