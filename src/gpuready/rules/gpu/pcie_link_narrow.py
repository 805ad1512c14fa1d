"""The PCIe link of a GPU has fewer lanes than it could have.

## What it checks
The current PCIe width against the maximum of the GPU. The generation is not checked, because it drops to 1 on
an idle GPU. If generation and width are both low, the link may be idle too. It is a warning for data-centre
GPUs and information for others, because many boards give two cards x8 each. GPUs on a module with their CPU
(GH200, GB200, GB10, Jetson) are not checked.

## Why it matters
Loading, offloading and traffic between GPUs without NVLink are slower by the same factor. Dust, a loose card,
a riser or a bad contact reduces the width and nothing reports it.

## How to fix
Reseat the card, try another slot, riser or cable, and check whether the firmware splits the lanes of the
slot.

## References
- NVML API, nvmlDeviceGetMaxPcieLinkWidth
"""

from gpuready.catalog.bands import parse_pcie_link
from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import gpu_health, visible_gpus

CODE = "GPU010"
SEVERITY = "warning"
READS = (*gpu_health.READS, "gpu.pcie", "gpu.pcie_max")
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {
    "gpu.count": 1,
    "gpu.visible": (0,),
    "gpu.name": ("NVIDIA A100-PCIE-40GB",),
    "gpu.pcie": ("4 x8",),
    "gpu.pcie_max": ("4 x16",),
}
HEALTHY = BROKEN | {"gpu.pcie": ("1 x16",)}
CITE = "NVML API, nvmlDeviceGetMaxPcieLinkWidth"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if gpu_health.is_not_applicable(facts, contract, "gpu.pcie", "gpu.pcie_max") or not visible_gpus.list_visible_gpus(
        facts
    ):
        return None
    now, most = (gpu_health.reported_values(facts, "gpu.pcie"), gpu_health.reported_values(facts, "gpu.pcie_max"))
    narrow = {i: f"{now[i]} of {most[i]}" for i in now if i in most and _is_narrower(now[i], most[i])}
    if not narrow:
        gpu_health.require_reported(facts, "gpu.pcie")
        gpu_health.require_reported(facts, "gpu.pcie_max")
        return None
    facts.value("gpu.name")  # the name shows which GPUs are not in a PCIe slot
    narrow = {
        i: note for i, note in narrow.items() if not gpu_health.gpu_name_contains(facts, i, *gpu_health.MODULE_GPUS)
    }
    serious = [
        i for i in narrow if _is_link_active(now[i], most[i]) and gpu_health.gpu_market(facts, i) == "datacenter"
    ]
    return _narrow_link_finding(facts, narrow, SEVERITY if serious else "info") if narrow else None


def _is_narrower(now: str, most: str) -> bool:
    """Return whether the link has fewer lanes than possible; a width of 0 was not read."""
    return 0 < parse_pcie_link(now)[1] < parse_pcie_link(most)[1]


def _is_link_active(now: str, most: str) -> bool:
    """Return whether the link is not in power saving, which lowers the generation first."""
    return parse_pcie_link(now)[0] >= parse_pcie_link(most)[0] > 0


def _narrow_link_finding(facts: Facts, narrow: dict[int, str], severity: str) -> Finding:
    best = str(gpu_health.reported_values(facts, "gpu.pcie_max")[min(narrow)])
    return make_finding(
        f"fewer PCIe lanes than possible on {visible_gpus.describe_gpus(facts, narrow, narrow)}",
        found=(facts.fact("gpu.pcie"), facts.fact("gpu.pcie_max")),
        needs=(Requirement("gpu.pcie", best, level="recommended", cite=CITE),),
        so="transfers to this GPU over PCIe are slower by the same factor",
        fix=(
            FixStep("reseat the card, or try another slot or riser", note="needs physical access"),
            FixStep("check whether the firmware splits the lanes of the slot", note="needs a reboot"),
        ),
        severity=severity,
    )
