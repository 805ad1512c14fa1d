"""An NVLink is faulty.

GPUs of one machine talk over NVLink, through NVSwitch in larger ones. The driver, or the Fabric Manager, reports that a link failed:
Xid 74 and 144 to 150, an SXid of a switch, or CUDA's own uncorrectable NVLink error. Collectives over that link fail or hang, and a
part of them is sent again and slow before that.

Take the node out, reset its GPUs together with the Fabric Manager, look at the error counters (nvidia-smi nvlink -e), and have the
board looked at when it comes again. Counters that are not zero without a failure are usual.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "GPU020"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    {"says": "NVRM: Xid (PCI:{gpu}): 74,", "in": "kernel"},
    {"says": "NVRM: Xid (PCI:{gpu}): 144,", "in": "kernel"},
    {"says": "NVRM: Xid (PCI:{gpu}): 145,", "in": "kernel"},
    {"says": "NVRM: Xid (PCI:{gpu}): 146,", "in": "kernel"},
    {"says": "NVRM: Xid (PCI:{gpu}): 147,", "in": "kernel"},
    {"says": "NVRM: Xid (PCI:{gpu}): 148,", "in": "kernel"},
    {"says": "NVRM: Xid (PCI:{gpu}): 149,", "in": "kernel"},
    {"says": "NVRM: Xid (PCI:{gpu}): 150,", "in": "kernel"},
    "uncorrectable NVLink error detected",
    {"says": "NVLink: fatal error detected on link"},
    {"says": "NVLink: Fatal error detected on link"},
    {"says": "SXid (PCI:{switch}): {number}, Fatal"},
    {"says": "SXid (PCI:", "as": "clue"},
    {"says": "detected NVSwitch fatal error"},
    {"says": "detected NVLink fatal error"},
    {"says": "NVSwitch non-fatal error", "as": "clue"},
    {"says": "caused by previous Xid {xid}", "when": "xid >= 144 and xid <= 150"},
    {"says": "caused by previous Xid {xid}", "when": "xid == 74"},
    {"says": "Xid={xid} on Device", "when": "xid == 74"},
    {"says": "Xid={xid} on Device", "when": "xid >= 144 and xid <= 150"},
    {"says": "<inactive>", "as": "clue", "with": ("Link 0", "Link 1", "Link 2", "Link 3", "Link 4")},
    {"says": "uncorrectable NVLink error"},
    {"says": "DCGM_FR_NVLINK_DOWN"},
    {"says": "DCGM_FR_NVLINK_ERROR"},
    {"says": "NVLink link {} is down"},
    {"says": "NvLink link{}is currently down"},
    {"says": "is currently down. Run a field diagnostic"},
    {"says": "Cuda failure {}uncorrectable NVLink"},
    {"says": "CUDA error: uncorrectable NVLink"},
    {"says": "Cuda failure 220"},
    {"says": "NVLink: Failed to train link"},
    {"says": "NVLink training failed"},
    {"says": "cudaErrorNvlinkUncorrectable"},
    {"says": "CUDA_ERROR_NVLINK_UNCORRECTABLE"},
    {"says": "SXid error"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
