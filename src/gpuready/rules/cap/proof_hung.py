"""A proof did not finish before its deadline.

## What it checks
Whether each proof ended in time. At the deadline its process and all children are ended. It is an error if
the framework requires the capability or the job asks for it, else a warning.

## Why it matters
A job that does the same may hang: a kernel that never returns, ranks that wait for each other, a package that
waits for a network at import, or a dead file system.

## How to fix
The evidence has the Python stacks, and the screen names the step. On a busy machine give more time with
``--deadline SECONDS``.

## References
- gpuready guide: prove (docs/how-to/prove.md)
"""

from gpuready.model import Contract, Facts, Finding
from gpuready.rules import proof_results

CODE = "CAP015"
SEVERITY = "error"
READS = proof_results.READS
REQUIRED_FACTS = ("proof.results",)
CONTRACT = {"capabilities": ({"name": "bf16", "level": "required"},)}
BROKEN, HEALTHY = proof_results.proof_examples("hung", "no end after 60 s, in the step: multiply in bf16")


def judge(facts: Facts, contract: Contract) -> Finding | None:
    so = "it was ended at its deadline; a job that does the same may hang"
    return proof_results.judge_proofs(facts, contract, "hung", "not finished before the deadline", so)
