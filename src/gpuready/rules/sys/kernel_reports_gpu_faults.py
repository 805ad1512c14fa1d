"""The kernel log has faults of a GPU.

## What it checks
NVRM Xid lines since the machine was booted and the driver loaded that indicate hardware: 48, 95 and 140 (memory),
64 (row remapping), 74, 136, 144 to 150 and 155 (NVLink), 79 (GPU fell off the bus), 119 and 120 (GSP), 143
(initialisation), 154 (recovery required), 156 (a part was retired), 158 (fatal timeout). They are errors. It is a
warning if only 63 and 94 are present, which the GPU repairs itself, or what NVIDIA says to go on after (147, 148,
157, and lines of 144 to 150 that say Nonfatal). The present state comes before old lines: it is a warning as well if NVML reports that no recovery is due, if the
driver logged so later, if no uncorrected memory error is counted any more, or if the GPU is not used here. Xids
that a faulty program causes (13, 31, 43, 45) are ignored. A log that may not be read is a gap.

## Why it matters
Unless the GPU was reset since, jobs on it may fail or stall again.

## How to fix
Take the action that NVIDIA's catalogue names for the Xid: reset the GPU, drain and power-cycle the node, or have
the GPU replaced. Run ``dcgmi diag -r 3`` before the machine gets jobs again.

## References
- NVIDIA Xid Errors, Analyzing Xid Errors with the Xid Catalog
- NVIDIA GPU Debug Guidelines
"""

from typing import Any

from gpuready.catalog import gpus
from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import gpu_health, visible_gpus

CODE = "SYS021"
SEVERITY = "warning"
READS = ("kernel.xids", "gpu.pci", "gpu.visible", "gpu.recovery", "gpu.ecc_errors", "os.container")
REQUIRED_FACTS = ("kernel.xids",)
BROKEN = {
    "kernel.xids": (
        {
            "xid": 63,
            "pci": "0000:3b:00.0",
            "line": "NVRM: Xid (PCI:0000:3b:00): 63, pid=7, Row Remapper: New row marked for remapping",
        },
    )
}
HEALTHY = {
    "kernel.xids": ({"xid": 31, "pci": "0000:3b:00.0", "line": "NVRM: Xid (PCI:0000:3b:00): 31, pid=7, MMU Fault"},)
}

GO_ON = "go on, and contact the vendor if it returns"
GOES_ON = "jobs go on; the GPU may need service if it returns"
NEEDS_RESET = "unless the GPU was reset since, jobs on it may fail or stall again"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms or "kernel.xids" not in facts:
        return None
    rows = [row for row in facts.value("kernel.xids") or () if isinstance(row, dict)]
    faults = [(row, known) for row in rows if (known := gpus.find_xid(row.get("xid"))) and not _is_all_clear(row)]
    if not faults:
        return None
    open_faults = [(row, known) for row, known in faults if _is_open(facts, rows, row, known)]
    shown = open_faults or faults
    return make_finding(
        f"the kernel log has GPU faults: {visible_gpus.join_names(_describe_faults(shown), 2)}",
        found=(facts.fact("kernel.xids"),),
        needs=_requirements(shown),
        so=GOES_ON if all(_may_go_on(row, known) for row, known in shown) else NEEDS_RESET,
        fix=_fix_steps(shown),
        severity="error" if open_faults else SEVERITY,
    )


def _describe_faults(faults: list[tuple[dict[str, Any], dict[str, Any]]]) -> list[str]:
    kinds = sorted({(int(row["xid"]), str(row.get("pci") or "?"), str(known["means"])) for row, known in faults})
    return [f"Xid {xid} on {pci} ({means})" for xid, pci, means in kinds]


def _fix_steps(faults: list[tuple[dict[str, Any], dict[str, Any]]]) -> tuple[FixStep, ...]:
    """Return NVIDIA's action for each Xid; where one of its lines is mild and another is not, that of the other."""
    steps = {}
    for row, known in sorted(faults, key=lambda fault: (fault[1]["xid"], not _may_go_on(*fault))):
        action = GO_ON if _is_mild(row, known) else known["action"]
        note = "" if _may_go_on(row, known) else "needs root"
        steps[known["xid"]] = FixStep(f"Xid {known['xid']}: {action} (NVIDIA: {known['bucket']})", note=note)
    if all(_may_go_on(row, known) for row, known in faults):
        return tuple(steps.values())
    return (*steps.values(), FixStep("run dcgmi diag -r 3 before the machine gets jobs again"))


def _may_go_on(row: dict[str, Any], known: dict[str, Any]) -> bool:
    return _is_mild(row, known) or bool(known.get("goes_on"))


def _is_mild(row: dict[str, Any], known: dict[str, Any]) -> bool:
    """Return whether the line says itself that nothing has to be done: ``149, NETIR_LINK_EVT Nonfatal XC0``."""
    return bool(known.get("mild")) and known["mild"] in str(row.get("line", ""))


def _requirements(faults: list[tuple[dict[str, Any], dict[str, Any]]]) -> tuple[Requirement, ...]:
    cites = dict.fromkeys(str(known["source"]) for _, known in faults)
    return tuple(Requirement("kernel.xids", "none", level="recommended", cite=cite) for cite in cites)


def _is_open(facts: Facts, rows: list[dict[str, Any]], row: dict[str, Any], known: dict[str, Any]) -> bool:
    """Return whether nothing shows that a fault is repaired, or is none of a GPU used here."""
    if known["level"] != "error" or _is_mild(row, known):
        return False
    after = rows[next(i for i, one in enumerate(rows) if one is row) + 1 :]
    if any(_is_all_clear(later) and later.get("pci") == row.get("pci") for later in after):
        return False
    addresses = facts.value_if_known("gpu.pci") or ()
    if row.get("pci") not in addresses:
        return not (addresses and gpu_health.is_in_container(facts))
    return _is_unrepaired(facts, addresses.index(row["pci"]), known)


def _is_unrepaired(facts: Facts, index: int, known: dict[str, Any]) -> bool:
    if index not in (facts.value_if_known("gpu.visible") or (index,)):
        return False
    if _value_at(facts, "gpu.recovery", index) == "none":
        return False
    return known.get("clears") != "memory" or _value_at(facts, "gpu.ecc_errors", index) != 0


def _value_at(facts: Facts, key: str, index: int) -> Any:
    values = (facts.fact(key).value if key in facts else None) or ()
    return values[index] if index < len(values) else None


def _is_all_clear(row: dict[str, Any]) -> bool:
    """Return whether the driver logged that no recovery is due any more."""
    return row.get("xid") == 154 and str(row.get("line", "")).rstrip().endswith("(None)")
