"""The GPU fails while it works.

The GPU answers when it is asked and fails when it works: CUDA reports an unknown error in the middle of a step, its own processor
(GSP) no longer answers, the driver cannot start it, or it refuses memory although it is nearly empty. The same job runs on other nodes.

Look at the kernel's log (dmesg, Xid), take the node out of the job, reset the GPU or reboot, and run a diagnosis (dcgmi diag -r 3). An
unknown error right at the start, before anything worked, is more often the driver or the container.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "GPU018"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    {
        "says": "derived: the GPU of rank {rank} does not complete what its peers have completed in {group}",
        "in": "derived",
        "as": "clue",
    },
    {"says": "CUDA error: unknown error"},
    {"says": "Cuda failure 'unknown error'"},
    {"says": "Cuda failure 999 'unknown error'"},
    {"says": "NVRM: Xid (PCI:{gpu}): 61,", "in": "kernel"},
    {"says": "NVRM: Xid (PCI:{gpu}): 62,", "in": "kernel"},
    {"says": "NVRM: Xid (PCI:{gpu}): 110,", "in": "kernel"},
    {"says": "NVRM: Xid (PCI:{gpu}): 119,", "in": "kernel"},
    {"says": "NVRM: Xid (PCI:{gpu}): 120,", "in": "kernel"},
    {"says": "NVRM: Xid (PCI:{gpu}): 140,", "in": "kernel"},
    {"says": "NVRM: Xid (PCI:{gpu}): 143,", "in": "kernel"},
    {"says": "NVRM: Xid (PCI:{gpu}): 69,", "in": "kernel", "as": "clue"},
    {"says": "Timeout waiting for RPC from GSP", "in": "kernel"},
    {"says": "Timeout after {} of waiting for RPC response from GPU", "in": "kernel"},
    {"says": "RmInitAdapter failed!", "in": "kernel"},
    {"says": "rm_init_adapter failed", "in": "kernel"},
    "CUDA error: hardware stack error",
    "CUDA error: the GPU is lost",
    {"says": "CUDA error: the launch timed out and was terminated", "as": "clue"},
    {
        "says": "CUDA out of memory. Tried to allocate {want} (GPU {gpu}; {total} total capacity; {held} already allocated; {free} free",
        "when": "free - want > 0.5 * total",
        "without": (" allowed",),
    },
    {
        "says": "CUDA out of memory. Tried to allocate {want}. GPU {gpu} has a total capacity of {total} of which {free} is free",
        "when": "free - want > 0.5 * total",
        "without": (" allowed",),
    },
    {
        "says": "CUDA out of memory. Tried to allocate {want}. GPU {gpu} has a total capacty of {total} of which {free} is free",
        "when": "free - want > 0.5 * total",
        "without": (" allowed",),
    },
    {"says": "NV_ERR_RESET_REQUIRED"},
    {"says": "Reset required [NV_ERR"},
    {"says": "Xid={xid} on Device", "when": "xid >= 119 and xid <= 120"},
    {"says": "Xid={xid} on Device", "when": "xid >= 61 and xid <= 62"},
    {"says": "caused by previous Xid {xid}", "when": "xid >= 119 and xid <= 120"},
    {"says": "GPU requires reset"},
    {"says": "GPU Reset required"},
    {"says": "GPU reset required"},
    {"says": "GSP RPC timeout"},
    {"says": "NVRM: _kgspRpcRecvPoll"},
    {"says": "NVRM: GPU {}: RmInitAdapter failed"},
    {"says": "NVRM: Xid ({gpu}): 154,", "in": "kernel"},
    {"says": "NVRM: Xid ({gpu}): 109,", "in": "kernel"},
    {"says": "Hardware Error]: {}NVIDIA"},
    {"says": "CUDA unknown error", "as": "clue"},
    {"says": "CUDA error 999", "as": "symptom"},
    {"says": "cuInit returned 999", "as": "symptom"},
    {"says": "cudaErrorUnknown", "as": "clue"},
    {"says": "CUDA_ERROR_UNKNOWN", "as": "clue"},
    {"says": "GPU memory test failed"},
    {"says": "| Fail - GPU", "as": "clue"},
    {"says": "RmInitAdapter failed"},
    {"says": "cuda runtime error (30)"},
    {"says": "CUDA runtime error (30)"},
    {"says": "unknown error (30)", "as": "symptom"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
