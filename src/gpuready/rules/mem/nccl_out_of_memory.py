"""No memory is left for the buffers of NCCL.

NCCL takes memory of the GPU for its channels and buffers, some hundred megabytes and more with many GPUs, outside of torch's
allocator. It is taken when a group is made or used for the first time, and the job may have filled the card by then: torch keeps
what it has once reserved. NCCL then says that CUDA is out of memory; its peers only see that the connection was closed.

Leave room: a smaller batch, more shards, fewer groups or channels (NCCL_BUFFSIZE, NCCL_MAX_NCHANNELS), or make the groups before the
model is loaded. An out of memory of torch's own allocator, with its numbers, is no case of this.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "MEM004"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    {"says": "Cuda failure 'out of memory'", "without": ("Failed to CUDA host alloc",)},
    {"says": "Cuda failure 2 'out of memory'", "without": ("Failed to CUDA host alloc",)},
    {"says": "Cuda failure 2: out of memory", "without": ("Failed to CUDA host alloc",)},
    "NCCL WARN Failed to CUDA calloc {bytes} bytes",
    "NCCL WARN Failed to CUDA malloc {bytes} bytes",
    "NCCL WARN Failed to CUDA calloc async {bytes} bytes",
    {"says": "HIP failure 'out of memory'", "in": "nccl"},
    {
        "says": "ncclUnhandledCudaError: Call to CUDA function failed",
        "with": ("CUDA error: out of memory", "Cuda failure 'out of memory'"),
    },
    {"says": "Failed to CUDA calloc {bytes} bytes", "with": ("NCCL", "nccl")},
    {"says": "Failed to CUDA malloc {bytes} bytes", "with": ("NCCL", "nccl")},
    {"says": "Failed to CUDA calloc async {bytes} bytes", "with": ("NCCL", "nccl")},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
