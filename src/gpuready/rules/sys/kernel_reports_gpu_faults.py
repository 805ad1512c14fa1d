"""The kernel log has faults of a GPU.

## What it checks
NVRM Xid lines in the kernel log that indicate hardware: 48, 94 and 95 (memory), 63 and 64 (row remapping), 74
(NVLink), 79 (GPU fell off the bus), 119 and 120 (GSP), 154 (reset required). Xids that a faulty program
causes (13, 31, 43, 45) are ignored. It is a warning; if only 63 and 94 are present it is information.

## Why it matters
Unless the GPU was reset since, jobs on it may fail or stall again. The GPU rules report the present state.

## How to fix
Look up the Xids, reset the GPU or reboot, and run ``dcgmi diag -r 3`` if they return.

## References
- NVIDIA Xid Errors, Analyzing Xid Errors with the Xid Catalog
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement
from gpuready.rules import visible_gpus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


CODE = "SYS021"
SEVERITY = "warning"
READS = ("kernel.xids",)
BROKEN = {
    "kernel.xids": (
        {
            "xid": 79,
            "pci": "0000:3b:00.0",
            "line": "NVRM: Xid (PCI:0000:3b:00): 79, pid=<unknown>, GPU has fallen off the bus.",
        },
    )
}
HEALTHY = {
    "kernel.xids": ({"xid": 31, "pci": "0000:3b:00.0", "line": "NVRM: Xid (PCI:0000:3b:00): 31, pid=7, MMU Fault"},)
}
XID_MEANINGS = {
    48: "uncorrectable memory error",
    63: "memory row marked as bad",
    64: "bad memory row not replaced",
    74: "NVLink",
    79: "fallen off the bus",
    94: "contained memory error",
    95: "uncontained memory error",
    119: "GSP did not answer",
    120: "GSP failed",
    140: "unrecoverable memory",
    143: "initialisation failed",
    154: "reset or reboot required",
}
SELF_REPAIRED_XIDS = (63, 94)
"""Xids of faults that the GPU has repaired itself."""


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms or "kernel.xids" not in facts:
        return None
    faults = [row for row in facts.value("kernel.xids") or () if _is_reportable_xid(row)]
    if not faults:
        return None
    kinds = sorted({(int(row["xid"]), str(row.get("pci") or "?")) for row in faults})
    words = [f"Xid {xid} on {pci} ({XID_MEANINGS[xid]})" for xid, pci in kinds]
    return Finding(
        CODE,
        "info" if all(xid in SELF_REPAIRED_XIDS for xid, _ in kinds) else SEVERITY,
        f"the kernel log has GPU faults: {visible_gpus.join_names(words, 2)}",
        found=(facts.fact("kernel.xids"),),
        needs=(Requirement("kernel.xids", "none", level="recommended", cite="NVIDIA Xid Errors, Xid Catalog"),),
        so="unless the GPU was reset since, jobs on it may fail or stall again",
        fix=(
            FixStep("reset the GPU or reboot, and check whether the lines return", note="needs root"),
            FixStep("run dcgmi diag -r 3 before the machine gets jobs again"),
        ),
    )


def _is_reportable_xid(row: dict[str, Any]) -> bool:
    if row.get("xid") not in XID_MEANINGS:
        return False
    # The driver also logs when no action is due any more.
    return row["xid"] != 154 or not str(row.get("line", "")).rstrip().endswith("(None)")
