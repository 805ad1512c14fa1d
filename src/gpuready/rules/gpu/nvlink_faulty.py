"""An NVLink is faulty.

## What it checks
Whether a GPU behind NVSwitches has fewer active NVLinks than its equals, or the links of a GPU had to recover
since the driver was loaded. In a log it is Xid 74 and 144 to 150, an SXid of a switch, or CUDA's uncorrectable
NVLink error. Bridges between single cards are not compared, and corrected errors (CRC, replay) are normal.

## Why it matters
Collectives over that link fail or hang. Before that they are slow, because data is sent again.

## How to fix
Take the node out of use, reset its GPUs together with the Fabric Manager, check the counters with ``nvidia-smi
nvlink -e``, and have the board inspected if it happens again: NVIDIA's action is a field diagnostic.

## References
- NVIDIA Xid Errors, Xid Catalog: 74
- NVIDIA Fabric Manager User Guide
- NVIDIA DCGM, dcgm_errors.h: DCGM_FR_NVLINK_ERROR_CRITICAL
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import gpu_health, visible_gpus

CODE = "GPU020"
SEVERITY = "error"
READS = (*gpu_health.READS, "gpu.nvlink", "gpu.nvlink_errors", "gpu.mig", "fabric.switches")
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {
    "gpu.count": 2,
    "gpu.visible": (0, 1),
    "gpu.name": ("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"),
    "gpu.nvlink": (18, 17),
    "gpu.nvlink_errors": (0, 0),
    "fabric.switches": 4,
}
HEALTHY = BROKEN | {"gpu.nvlink": (18, 18)}
CITE = "NVIDIA DCGM, dcgm_errors.h: DCGM_FR_NVLINK_ERROR_CRITICAL (run a field diagnostic)"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if gpu_health.is_not_applicable(facts, contract, "gpu.nvlink") or not visible_gpus.list_visible_gpus(facts):
        return None
    recovered = {i: f"{n} recoveries" for i, n in _recoveries(facts).items() if n}
    if recovered:
        return _faulty_links_finding(facts, "gpu.nvlink_errors", "links that had to recover on", recovered)
    if not facts.fact("fabric.switches").gap and not facts.value("fabric.switches"):
        return None
    down = _gpus_with_fewer_links(facts)
    if not down or not facts.value("fabric.switches"):  # the switches matter only where links differ
        return None
    return _faulty_links_finding(facts, "gpu.nvlink", "fewer NVLinks than its equals on", down)


def _recoveries(facts: Facts) -> dict[int, int]:
    return gpu_health.reported_values(facts, "gpu.nvlink_errors") if "gpu.nvlink_errors" in facts else {}


def _gpus_with_fewer_links(facts: Facts) -> dict[int, str]:
    """Return the GPUs with fewer links than another one of the same name; a GPU in MIG mode uses none."""
    gpu_health.require_reported(facts, "gpu.nvlink")
    names, mig = facts.value("gpu.name") or (), facts.value_if_known("gpu.mig") or ()
    links = {
        i: n
        for i, n in gpu_health.reported_values(facts, "gpu.nvlink").items()
        if i < len(names) and not (i < len(mig) and mig[i] == "on")
    }
    most = {name: max(n for i, n in links.items() if names[i] == name) for name in {names[i] for i in links}}
    return {i: f"{n} of {most[names[i]]} links" for i, n in links.items() if n < most[names[i]]}


def _faulty_links_finding(facts: Facts, key: str, what: str, bad: dict[int, str]) -> Finding:
    return make_finding(
        f"{what} {visible_gpus.describe_gpus(facts, bad, bad)}",
        found=(facts.fact(key),),
        needs=(Requirement(key, "all up, none recovered", cite=CITE),),
        so="collectives over the link fail or hang, and before that they are slow",
        fix=(
            FixStep("show the counters of the links", ("nvidia-smi", "nvlink", "-e"), "safe"),
            FixStep("drain the node and reset its GPUs together with the Fabric Manager", note="needs root"),
            FixStep("have the board inspected if it happens again: a field diagnostic, then RMA"),
        ),
    )
