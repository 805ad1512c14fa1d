"""A proof was ended by a signal.

The process in which ``gpuready prove`` executed a capability died: SIGSEGV (a library that does not fit the others, a
driver in a bad state), SIGABRT (a library gave up), SIGBUS (shared memory ran out, a file was cut short), SIGILL (code for
another processor) or SIGKILL (mostly the kernel, for want of memory). Nothing else was harmed: every proof has a process of
its own, and after one that used a GPU the GPU is proved again.

The Python stack at the moment of the crash is in the evidence, and the screen names the step. It is an error for a
capability that the contract requires or the job asks for, else a warning.
"""

from __future__ import annotations

from gpuready.rules import proof_results

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "CAP014"
SEVERITY = "error"
READS = proof_results.READS
CONTRACT = {"capabilities": ({"name": "bf16", "level": "required"},)}
BROKEN, HEALTHY = proof_results.proof_examples("crashed", "ended by SIGSEGV, in the step: import torch")


def judge(facts: Facts, contract: Contract) -> Finding | None:
    proofs = proof_results.select_proofs(facts, "crashed")
    if not proofs:
        proof_results.read_proof_facts(facts)
        return None
    message = f"crashed when executed: {proof_results.name_proofs(proofs)}: {proofs[0].get('why')}"
    so = proof_results.proof_cause(proofs) or "the process was ended by a signal; a job that does the same ends so too"
    return proof_results.proof_finding(facts, contract, CODE, proofs, message, so)
