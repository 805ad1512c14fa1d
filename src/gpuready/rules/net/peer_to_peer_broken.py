"""The memory of one GPU cannot be reached from another although the driver says so.

GPUs of one machine copy directly into each other's memory where the driver says that they can. Consumer cards announce it and do
not do it; a BIOS with IOMMU or ACS turned on sends the copies through the processor or loses them; a virtual machine shows half of
the topology. NCCL then fails in its peer-to-peer transport, returns wrong numbers, or hangs in the first collective.

Set NCCL_P2P_DISABLE=1 to see whether that is it. To mend it: turn off ACS or IOMMU, update the driver, or leave it off on cards
that cannot. Warnings of an engine that it will not use peer-to-peer copies are no failure.
"""

from __future__ import annotations

from gpuready.rules import log_findings
from gpuready.rules.log_phrases import DATA_PREPARATION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "NET013"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    "peer access is not supported between these two devices",
    "peer access has not been enabled",
    "P2P is disabled between NVLINK connected GPUs",
    {"says": "P2P is disabled between {} connected GPUs", "in": "nccl"},
    {
        "says": "transport/p2p.cc:{} NCCL WARN",
        "without": ("out of memory", "No space left", "Socket recv failed", "Connection closed"),
    },
    {"says": "NCCL WARN failed to open CUDA IPC handle", "in": "nccl"},
    {"says": "NCCL WARN Cuda failure {}mapping of buffer object failed", "in": "nccl"},
    {"says": "NCCL WARN Cuda failure {}invalid resource handle", "in": "nccl"},
    {"says": "NCCL WARN Cuda failure {}invalid device pointer", "in": "nccl"},
    "mapping of buffer object failed",
    "cudaIpcOpenMemHandle failed",
    {"says": "Could not enable P2P between dev", "as": "trace"},
    {
        "says": "Watchdog caught collective operation timeout",
        "also": ("via P2P/", "NCCL_P2P_DISABLE", "GeForce RTX", "IO_PAGE_FAULT"),
        "as": "clue",
    },
    {
        "says": "Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq},",
        "when": "seq <= 4",
        "as": "clue",
        "unless": ("exitcode: -9", "Signal 9 (SIGKILL)", *DATA_PREPARATION),
    },
    {"says": "Event logged [IO_PAGE_FAULT", "with": ("nvidia", "NVRM", "NCCL")},
    {"says": "Event logged [IO_PAGE_FAULT", "as": "clue"},
    {"says": "Verification error @ element"},
    {"says": "Cuda error {}custom_all_reduce.cuh"},
    {"says": "Cuda failure 'invalid argument'", "as": "clue"},
    {"says": "Cuda failure 1 'invalid argument'", "as": "clue"},
    {"says": "DMAR: [DMA Write] Request device", "as": "clue"},
    {"says": "DMAR: DRHD: handling fault status reg", "as": "clue"},
    {"says": "GPU P2P verification failed", "as": "clue"},
    "peer access is not supported between",
    {"says": "peer-to-peer access is not supported"},
    {"says": "Peer-to-peer access is unsupported"},
    {"says": "Cuda failure 217"},
    {"says": "Cuda failure 'peer access", "as": "clue"},
    {"says": "P2P is not supported between"},
    {"says": "cudaDeviceEnablePeerAccess{}failed"},
    {"says": "cudaDeviceCanAccessPeer{}failed"},
    {"says": "invalid resource handle", "with": ("ipc", "IPC", "Ipc", "custom_all_reduce", "nvls", "NVLS")},
    {"says": "Cuda failure {}'invalid resource handle'"},
    {"says": "NVLS{}Cuda failure", "in": "nccl"},
    {"says": "transport/nvls.cc:{} NCCL WARN", "without": ("out of memory",)},
    {"says": "Custom allreduce is disabled because{}P2P", "as": "trace"},
    {"says": "ncclP2pImportShareableBuffer"},
    {"says": "CUDA error: peer access"},
    {"says": "Cuda failure {}'peer access"},
    {"says": "transport/p2p.cc:{} -> 1", "as": "clue", "without": ("out of memory",)},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
