"""The PCIe link of a GPU has fewer lanes than it could have.

A GPU and its slot agree on a width when the machine starts: x16 for most. Dust in a slot, a card that is not
quite seated, a riser or a failing contact make them agree on x8, x4 or x1, and nothing says so: loading,
offloading and traffic between GPUs without NVLink are then as many times slower.

Only the width is judged. The generation falls to 1 when a GPU rests and rises under load, on every healthy
machine, so that it proves nothing here. Where generation and width are both low, the link may be resting
too. It is a warning for data-centre GPUs, whose slots are made for them. For other cards it is one line of
information: many boards give two cards x8 each, and that is how they are built. GPUs that share a module
with their processor (GH200, GB200, GB10, Jetson) do not speak to it over PCIe and are left out.

Seat the card again, try another slot or cable, and look whether the firmware divides the lanes of the slot.
"""

from __future__ import annotations

from gpuready.model import Finding, Need, Step
from gpuready.rules import cards, health

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts

CODE = "GPU010"
SEVERITY = "warning"
READS = (*health.READS, "gpu.pcie", "gpu.pcie_max")
SIGNS = ()
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
    if health.rests(facts, contract, "gpu.pcie", "gpu.pcie_max") or not cards.shown(facts):
        return None
    now, most = health.told(facts, "gpu.pcie"), health.told(facts, "gpu.pcie_max")
    narrow = {i: f"{now[i]} of {most[i]}" for i in now if i in most and _less(now[i], most[i])}
    if not narrow:
        health.settled(facts, "gpu.pcie")
        health.settled(facts, "gpu.pcie_max")
        return None
    facts.value("gpu.name")  # the name shows which GPUs are not in a PCIe slot
    narrow = {i: note for i, note in narrow.items() if not health.named(facts, i, *health.CHIPS)}
    grave = [i for i in narrow if _awake(now[i], most[i]) and health.market(facts, i) == "datacenter"]
    return _finding(facts, narrow, SEVERITY if grave else "info") if narrow else None


def _link(text: object) -> tuple[int, int]:
    """Parse generation and width: ``5 x16`` -> (5, 16); zeros for any other text."""
    generation, _, width = str(text).partition(" x")
    return (int(generation), int(width)) if generation.isdecimal() and width.isdecimal() else (0, 0)


def _less(now: object, most: object) -> bool:
    """Return whether the link has fewer lanes than possible; a width of 0 was not read."""
    return 0 < _link(now)[1] < _link(most)[1]


def _awake(now: object, most: object) -> bool:
    """Return whether the link is not in power saving, which lowers the generation first."""
    return _link(now)[0] >= _link(most)[0] > 0


def _finding(facts: Facts, narrow: dict[int, str], severity: str) -> Finding:
    best = str(health.told(facts, "gpu.pcie_max")[min(narrow)])
    return Finding(
        CODE,
        severity,
        f"fewer PCIe lanes than there could be on {cards.called(facts, narrow, narrow)}",
        found=(facts.fact("gpu.pcie"), facts.fact("gpu.pcie_max")),
        needs=(Need("gpu.pcie", best, level="recommended", cite=CITE),),
        so="whatever goes to this GPU over PCIe takes as many times longer as lanes are missing",
        fix=(
            Step("seat the card again, or try another slot or riser", note="needs hands"),
            Step("look whether the firmware divides the lanes of the slot", note="needs a reboot"),
        ),
    )
