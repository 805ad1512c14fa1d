"""The time limit of the job was reached.

The scheduler ends a job when its time is up: it sends SIGTERM to every process, and soon after SIGKILL. Nothing is wrong with
the machine or with the program; the tracebacks of processes that were told to go only follow from it.

Ask for a longer limit, or save checkpoints often enough and let the job be queued again (--signal tells it some minutes before). A
job that somebody cancelled has the same words without the time limit.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "RUN005"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    "DUE TO TIME LIMIT",
    "CANCELLED AT {when} DUE TO TIME LIMIT",
    "slurmstepd: error: {} exceeded time limit",
    "Job killed: walltime",
    {"says": "PBS: job killed: walltime {used} exceeded limit"},
    "TERM_RUNLIMIT: job killed after reaching LSF run time limit",
    {"says": "walltime {} exceeded limit"},
    "Job reached wallclock limit",
    "DeadlineExceeded: Job was active longer than specified deadline",
    "Job was active longer than specified deadline",
    "exceeded hard wallclock time",
    "exceeded soft wallclock time",
    {"says": "MaxRuntimeExceeded"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
