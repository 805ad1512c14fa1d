"""The checkpoint holds what torch.load no longer loads by default.

A checkpoint is a pickle, and a pickle can run code. Since torch 2.6 ``torch.load`` builds only tensors and plain containers unless it is told otherwise, and
refuses a checkpoint that holds anything else: states of numpy's random numbers, an ``argparse.Namespace``, a class of DeepSpeed or of the framework.
Checkpoints of older frameworks hold such things, so resuming fails after an upgrade of torch.

Upgrade the framework, allow the class with ``torch.serialization.add_safe_globals``, or, for files of one's own, load with ``weights_only=False``. A file
that is a git-lfs pointer fails in the same function, and is another matter.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "PKG032"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    {
        "says": "Weights only load failed",
        "without": ("Unsupported operand 118", "invalid load key", "Unsupported operand 60"),
    },
    {"says": "WeightsUnpickler error: Unsupported global"},
    {"says": "WeightsUnpickler error: Unsupported class"},
    {"says": "Unsupported global: GLOBAL"},
    {"says": "was not an allowed global by default"},
    {"says": "Due to a serious vulnerability issue in `torch.load`"},
    {"says": "WeightsUnpickler error:", "as": "clue", "without": ("Unsupported operand 118", "Unsupported operand 60")},
    {"says": "Please use `torch.serialization.add_safe_globals([", "in": "exception"},
    {"says": "Trying to load unsupported GLOBAL"},
    {"says": "Trying to call reduce for unrecognized function"},
    {"says": "Can only build Tensor, {}but got", "in": "exception"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
