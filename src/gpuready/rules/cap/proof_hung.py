"""A proof did not end before its deadline.

The process in which ``gpuready prove`` executed a capability was still at work, or waiting, when its time was up, and was
ended with everything that it had started. A kernel that never returns, ranks that wait for each other, a package that
waits for a network at import, a dead file system: the Python stacks of that moment are in the evidence, and the screen names
the step. After one that used a GPU, the GPU is proved again.

A machine under heavy load may only be slow: give more time with ``--deadline SECONDS``. It is an error for a capability
that the contract requires or the job asks for, else a warning.
"""

from __future__ import annotations

from gpuready.rules import proof_results

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "CAP015"
SEVERITY = "error"
READS = proof_results.READS
CONTRACT = {"capabilities": ({"name": "bf16", "level": "required"},)}
BROKEN, HEALTHY = proof_results.proof_examples("hung", "no end after 60 s, in the step: multiply in bf16")


def judge(facts: Facts, contract: Contract) -> Finding | None:
    proofs = proof_results.select_proofs(facts, "hung")
    if not proofs:
        proof_results.read_proof_facts(facts)
        return None
    message = f"not done when its time was up: {proof_results.name_proofs(proofs)}: {proofs[0].get('why')}"
    so = proof_results.proof_cause(proofs) or "it was ended at its deadline; a job that does the same may wait for ever"
    return proof_results.proof_finding(facts, contract, CODE, proofs, message, so)
