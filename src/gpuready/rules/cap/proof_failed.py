"""A proof ran, and what came out is wrong.

``gpuready prove`` executed a capability in the patient's own Python and compared the result with a reference in float64,
or with numbers that are known exactly. Either a number was outside of its bound, or an exception came instead of a
result. The screen names the step in which it happened; the output is kept in the evidence. Where the output has the sign
of a known cause, its fix is told here.

It is an error for a capability that the contract requires or the job asks for, else a warning. Something that was not
there to be executed (no GPU, a package that is not installed) is not this: CAP016 tells of it.
"""

from __future__ import annotations

from gpuready.rules import proof_results

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "CAP013"
SEVERITY = "error"
READS = proof_results.READS
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
        or f"the step was: {first.get('step') or 'none'}; a job that does the same fails"
    )
    message = f"executed and wrong: {proof_results.name_proofs(proofs)}: {first.get('why')}"
    return proof_results.proof_finding(facts, contract, CODE, proofs, message, so)
