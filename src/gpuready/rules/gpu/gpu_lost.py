"""A GPU has fallen off the bus.

## What it checks
Whether the driver reports a GPU as lost: it no longer answers on PCIe. The kernel log has Xid 79, ``GPU has
fallen off the bus``; nvidia-smi says ``GPU is lost. Reboot the system to recover this GPU``.

## Why it matters
CUDA often cannot be initialised on any GPU of the machine until the lost one is back. It is therefore an
error even if CUDA_VISIBLE_DEVICES excludes the lost GPU. Usual causes: power supply under load, heat, a loose
card, riser or cable, failing hardware; less often the driver or firmware.

## How to fix
Reboot. If that does not help, disconnect the power for a minute. If it happens again, check power and
cooling, try the card in another slot, and have it replaced.

## References
- NVIDIA Xid Errors, Xid Catalog: 79
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import gpu_health, visible_gpus

CODE = "GPU013"
SEVERITY = "error"
READS = ("gpu.lost", "gpu.pci", "job.wants")
REQUIRED_FACTS = ("gpu.lost",)
BROKEN = {"gpu.lost": (3,), "gpu.pci": ("0000:1b:00.0", "0000:43:00.0", "0000:52:00.0", "0000:5e:00.0")}
HEALTHY = BROKEN | {"gpu.lost": ()}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if gpu_health.is_not_applicable(facts, contract, "gpu.lost"):
        return None
    # One lost GPU is enough, even if another could not be queried for another reason.
    lost = [n for n in facts.fact("gpu.lost").value or facts.value("gpu.lost") or () if n is not None]
    if not lost:
        return None
    which = visible_gpus.join_names([_describe_lost_gpu(facts, index) for index in lost])
    return make_finding(
        f"fallen off the bus: {which}",
        found=(facts.fact("gpu.lost"),),
        needs=(Requirement("gpu.lost", "none", cite="NVIDIA Xid Errors, Xid Catalog: 79"),),
        so="CUDA fails on it, and often on all other GPUs of the machine until it is back",
        fix=(
            FixStep("reboot; if it stays lost, disconnect the power for a minute", note="needs root"),
            FixStep("check power supply, cables, riser and cooling of that card", note="needs physical access"),
        ),
    )


def _describe_lost_gpu(facts: Facts, index: int) -> str:
    """Name a GPU by its PCI address, as the kernel log does."""
    addresses = facts.fact("gpu.pci").value or ()
    address = addresses[index] if 0 <= index < len(addresses) else None
    return f"GPU {index} ({address})" if address else f"GPU {index}"
