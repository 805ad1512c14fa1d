"""The ranks do not run the same software.

Every rank of a job must have the same torch, CUDA, NCCL and Python, the same script and packages, the same seed, device and backend, and the same
variables by which libraries of communication choose their way. Where they differ, nothing says so: collectives hang, go slowly, or give
numbers that no two runs have in common. ``gpuready.launch()`` compares them at its roll-call, before a group is made.

Give all hosts one environment and start the same command everywhere. A difference that is meant is allowed with ``allow_skew=True``
or GPUREADY_ALLOW_SKEW=1, and is then a note.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "RUN020"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = ({"says": "the {what} differs between ranks: {found}"},)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
