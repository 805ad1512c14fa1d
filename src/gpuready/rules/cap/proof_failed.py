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
    proofs = proof_results.select_proofs(facts, "failed")
    if not proofs:
        proof_results.read_proof_facts(facts)
        return None
    first = proofs[0]
    so = (
        proof_results.proof_cause(proofs)
        or f"it failed in the step: {first.get('step') or 'none'}; a job that does the same fails"
    )
    message = f"wrong result: {proof_results.name_proofs(proofs)}: {first.get('why')}"
    return proof_results.proof_finding(facts, contract, proofs, message, so)
