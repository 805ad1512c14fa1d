"""The process had joined a job, or touched a device, before launch was called.

``gpuready.launch()`` chooses the device, makes the group and seeds everything; it can do so once, and only where nothing of it has been done. A
second call, a call after ``init_process_group``, or one after the first use of CUDA would leave the process with two answers: a context on
device 0 in every rank is the usual one, and costs each of them half a gigabyte on the first GPU.

Call it once, at the top of the script, before anything touches a device, and keep the World that it returns.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "RUN021"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    "gpuready.launch() was called before in this process",
    "somebody called init_process_group before gpuready.launch()",
    "before gpuready.launch(), and so has a context on a device",
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
