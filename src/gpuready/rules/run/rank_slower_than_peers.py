"""One rank is slower than the others.

The others mostly wait while it computes: every collective takes as long as the slowest rank. A GPU whose clocks are held down, a process
that shares its processor, a data loader without enough workers, or more work for one rank than for the others.

Look at the stack of that rank, compare the clocks of the GPUs (``gpuready check``), and give all ranks the same work.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "RUN026"
SEVERITY = "warning"
READS = log_findings.READS
PATTERNS = ({"says": "computes ({share} of a processor) while the others mostly wait", "as": "clue"},)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
