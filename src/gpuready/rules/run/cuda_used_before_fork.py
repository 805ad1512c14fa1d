"""A process was forked after CUDA was used.

CUDA lives in a process with threads and mappings that fork does not copy. A child that was forked after the parent had
touched CUDA (``torch.cuda.is_available()`` of an older torch is enough, or a model that was put on the GPU) cannot
use it: torch refuses with this error. It happens with data loaders whose workers touch the GPU, with vLLM in a script
that used CUDA before, and with notebooks.

Start the workers with the spawn method, or touch CUDA only in the children. A fork without CUDA in the child is fine.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "RUN007"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    "Cannot re-initialize CUDA in forked subprocess",
    "Cannot re-initialize XPU in forked subprocess",
    "CUDA initialization error{}forked",
    {"says": "CUDA error: initialization error", "with": ("multiprocessing", "fork"), "as": "clue"},
    "in forked subprocess. To use {} with multiprocessing, you must use the 'spawn' start method",
    "Lightning can't create new processes if CUDA is already initialized",
    "CUDA has been initialized before the `notebook_launcher` could create a forked subprocess",
    "the `Accelerator` should only be initialized inside your training function",
    "you need to avoid running any instruction using `torch.cuda` in any cell",
    {"says": "cuda runtime error (3) : initialization error", "with": ("multiprocessing", "DataLoader worker")},
    {"says": "CUDA error: initialization error", "with": ("DataLoader worker", "_worker_loop")},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
