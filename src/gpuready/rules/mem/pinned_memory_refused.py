"""The driver does not pin host memory.

Copies to the GPU run fastest from pages of host memory that stay where they are. The driver hands them out, and CUDA reports a
refusal as out of memory, although the GPU is empty. WSL allows only a part of the memory of the machine to be pinned, containers and
limits on locked memory allow less, and offloading (a swap space for the KV cache, ZeRO offload, data loaders) asks for gigabytes.

Ask for less: a smaller swap space, no pin_memory in the data loader or the offload, or more memory for WSL. The frame tells it apart:
the call that failed is the one that allocates or registers host memory.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "MEM006"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    {
        "says": "CUDA error: out of memory",
        "with": (
            "pin_memory",
            "pinned",
            "cudaHostAlloc",
            "cudaHostRegister",
            "HostAlloc",
            "allocate_cpu_cache",
            "cpu_cache",
            "PinnedMemory",
            "swap_space",
        ),
        "without": ("NCCL WARN",),
    },
    {"says": "CUDA error: OS call failed or operation not supported on this OS", "with": ("pin", "Host", "cpu_cache")},
    {
        "says": "CUDA error: invalid argument",
        "with": ("pin_memory()", "pin memory thread", "cudaHostRegister", "_pin_memory_loop"),
    },
    {"says": "CUDA error: resource already mapped", "with": ("pin", "Host")},
    "cudaHostAlloc failed",
    "cudaHostRegister failed",
    "cudaMallocHost failed",
    "failed to allocate pinned memory",
    "Failed to allocate pinned memory",
    "Failed to CUDA host alloc {bytes} bytes",
    "failed to pin host memory",
    "Failed to pin memory",
    "failed to allocate {} of pinned memory",
    "failed to allocate {} pinned memory",
    {"says": "Failed to allocate {} of pinned memory"},
    {"says": "failed to allocate {} of pinned host memory"},
    {"says": "pinned memory allocation failed"},
    {"says": "cannot pin", "in": "exception", "with": ("memory",)},
    {"says": "Failed to register host memory"},
    {"says": "cudaHostRegister", "in": "exception"},
    {"says": "cudaHostAlloc", "in": "exception"},
    {"says": "Could not allocate pinned host memory"},
    {"says": "could not allocate pinned host memory"},
    {"says": "could not allocate pinned memory"},
    {"says": "pin_memory_hook", "in": "exception"},
    {"says": "pin_memory failed"},
    {"says": "Failed to pin {} memory"},
    {"says": "cuMemHostRegister"},
    {"says": "cuMemHostAlloc"},
    {"says": "CUDA error: part or all of the requested memory range is already mapped"},
    {"says": "Pin memory thread exited unexpectedly"},
    {"says": "could not allocate pinned host memory of size"},
    {"says": "bytes on host: CUDA_ERROR_OUT_OF_MEMORY"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
