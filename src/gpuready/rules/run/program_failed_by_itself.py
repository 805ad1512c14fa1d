"""The program itself failed.

An exception that speaks of no driver, library, memory or network came from the program: from its code, its data or its
configuration. A token that the embedding does not have, a column that is missing, samples of unequal length, an option with a wrong
value. The frame that is named is the innermost one in a file of the user's own, or, where there is none, the innermost of all.

Look at what that line works on. A package that is missing or of another version is no case of this: that has codes of its own.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "RUN019"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    "Assertion `srcIndex < srcSelectDimSize` failed",
    "Assertion `t >= 0 && t < n_classes` failed",
    'Assertion `idx_dim >= 0 && idx_dim < index_size && "index out of bounds"` failed',
    {"says": "thread: [{}] Assertion `{what}` failed"},
    {"says": "CUDA error: device-side assert triggered"},
    {"says": "CUDA error: an illegal memory access was encountered", "as": "clue"},
    {"says": "CUDA error: an illegal instruction was encountered", "as": "clue"},
    {"says": "CUDA error: misaligned address", "as": "clue"},
    {"says": "CUDA error: unspecified launch failure", "as": "clue"},
    {"says": "CUDA error: operation not permitted when stream is capturing", "as": "clue"},
    {"says": "CUDA error: operation failed due to a previous error during capture", "as": "clue"},
    {"says": "CUDA error: invalid configuration argument", "as": "clue"},
    {"says": "CUDA error: too many resources requested for launch", "as": "clue"},
    {"says": "Cuda failure 'an illegal memory access was encountered'", "as": "clue"},
    {"says": "Cuda failure 700 'an illegal memory access was encountered'", "as": "clue"},
    {"says": "Triton Error [CUDA]: an illegal memory access was encountered", "as": "clue"},
    {"says": "Triton Error [CUDA]: misaligned address", "as": "clue"},
    {"says": "NVRM: Xid (PCI:{gpu}): 13,", "in": "kernel", "as": "clue"},
    {"says": "NVRM: Xid (PCI:{gpu}): 31,", "in": "kernel", "as": "clue"},
    {"says": "NVRM: Xid (PCI:{gpu}): 43,", "in": "kernel", "as": "clue"},
    {"says": "HIP error: device-side assert triggered", "as": "clue"},
    {"says": "Cuda failure 'device-side assert triggered'", "as": "clue"},
    {"says": "expected sequence of length {} at dim {} (got {})", "in": "exception"},
    {"says": "Unable to create tensor, you should probably activate truncation and/or padding", "in": "exception"},
    {"says": "Expected to have finished reduction in the prior iteration before starting a new one", "in": "exception"},
    {"says": ": error: unrecognized arguments: {what}", "without": ("--local-rank", "--local_rank")},
    {"says": ": error: the following arguments are required: {what}", "without": ("--local-rank", "--local_rank")},
    {"says": ": error: argument --{what}: invalid"},
    {"says": ": error: argument --{what}: expected"},
    {"says": "Process {pid} got signal: 2", "in": "exception", "as": "clue"},
    {"says": "KeyboardInterrupt", "in": "exception", "as": "clue"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
