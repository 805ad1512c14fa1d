"""A proof was ended by a signal.

## What it checks
Whether the process of a proof died: SIGSEGV (incompatible libraries, a driver in a bad state), SIGABRT (a
library gave up), SIGBUS (shared memory ran out, a truncated file), SIGILL (code for another processor) or
SIGKILL (usually out of memory). It is an error if the framework requires the capability or the job asks for
it, else a warning.

## Why it matters
A job that does the same ends the same way. Each proof has its own process, and after one that used a GPU the
GPU is proved again, so nothing else is affected.

## How to fix
The evidence has the Python stack at the crash, and the screen names the step.

## References
- gpuready guide: prove (docs/how-to/prove.md)
- signal(7)
"""

from gpuready.model import Contract, Facts, Finding
from gpuready.rules import proof_results

CODE = "CAP014"
SEVERITY = "error"
READS = proof_results.READS
REQUIRED_FACTS = ("proof.results",)
CONTRACT = {"capabilities": ({"name": "bf16", "level": "required"},)}
BROKEN, HEALTHY = proof_results.proof_examples("crashed", "ended by SIGSEGV, in the step: import torch")


def judge(facts: Facts, contract: Contract) -> Finding | None:
    so = "the process was ended by a signal; a job that does the same crashes too"
    return proof_results.judge_proofs(facts, contract, "crashed", "crashed", so)
