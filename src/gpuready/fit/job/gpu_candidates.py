"""The GPUs that a job is judged on: of the catalogue, of a recording, of this machine; with what one process
can use.

A GPU of the catalogue has a band: a process sees less than the nominal memory, depending on driver and ECC. For
a probed GPU the free memory is used, so memory of other processes is not counted twice.
"""

from collections.abc import Iterable
from typing import Any

from gpuready.catalog import gpus, load_catalog, machine_names
from gpuready.fit.job.records import FitPrediction, GpuCard
from gpuready.model import Facts
from gpuready.model.fit import GpuCandidate

GIB = 1 << 30
DRIVER_GIB, DRIVER_SHARE = 0.36, 0.01
"""Most that driver and page tables take of a card, in GiB and as a share: an RTX 5090 of 32 shows 31.36 GiB, an
RTX 4060 of 8 shows 7.63, an H100 of 80 shows 79.1, an H200 of 141 shows 139.8.
"""
MAX_VISIBLE_SHARE = 0.996
"""The largest share of the nominal memory that a process sees."""
SLICE_SHARE = (0.88, 0.99)
"""Share of the GB in a MIG slice's name that a process sees: of 1g.5gb 4.75 GiB, of 1g.10gb 9.5, of 1g.18gb 16."""
IDLE_SHARE = 0.01
"""The largest share of an idle GPU that the driver alone uses."""


USUAL_GPUS = (
    "GeForce RTX 3090", "GeForce RTX 4090", "GeForce RTX 5090", "A100-SXM4-40GB", "L40S", "A100-SXM4-80GB",
    "H100 80GB HBM3", "H200", "B200",
)  # fmt: skip
"""What most people have or rent: judged where no machine is named."""


def list_catalogue_gpus(every: bool = True) -> list[GpuCandidate]:
    """Return the GPUs of the catalogue that people train on, or the usual ones of them, the smallest first."""
    rows = [row for row in load_catalog("gpus")["gpu"] if row.get("training", True)]
    rows = [row for row in rows if every or row["name"].removeprefix("NVIDIA ") in USUAL_GPUS]
    return sorted(map(gpu_from_row, rows), key=lambda gpu: (gpu.memory[1], gpu.capability, gpu.name))


def gpu_from_row(row: dict[str, Any], count: int = 1) -> GpuCandidate:
    """Return ``count`` GPUs of a catalogue row."""
    box = row["vram_gib"]
    least = row.get("usable_gib") or _least_visible_gib(row, box)
    words = row.get("default_for") or row.get("short") or [row["name"]]
    return GpuCandidate(
        row["name"],
        row["compute_capability"],
        (int(least * GIB), int(box * MAX_VISIBLE_SHARE * GIB)),
        indexes=tuple(range(count)),
        source="catalogue",
        short=words[0],
    )


def _least_visible_gib(row: dict[str, Any], box: float) -> float:
    """Return the least that a process sees of a card. ECC, on for data-centre cards, takes a sixteenth of GDDR."""
    guarded = row.get("market") == "datacenter" and "GDDR" in row.get("mem_type", "")
    return float((box * 15 / 16 if guarded else box) - DRIVER_GIB - DRIVER_SHARE * box)


def gpus_from_facts(facts: Facts) -> list[GpuCandidate]:
    """Group the visible GPUs of a machine or a recording."""
    visible = facts.value_if_known("gpu.visible") or () if facts.value_if_known("gpu.count") else ()
    groups: dict[tuple[Any, ...], list[int]] = {}
    for number, index in enumerate(visible):
        groups.setdefault(_read_gpu_facts(facts, index), []).append(number)
    return [
        GpuCandidate(name, capability, memory, used_memory, tuple(numbers), source)
        for (name, capability, memory, used_memory, source), numbers in groups.items()
    ]


def _read_gpu_facts(facts: Facts, index: int) -> tuple[str, str, tuple[int, int], int, str]:
    total, free = _fact_at_index(facts, "gpu.memory", index), _fact_at_index(facts, "gpu.free", index)
    name = _fact_at_index(facts, "gpu.name", index) or "unknown GPU"
    capability = _fact_at_index(facts, "gpu.capability", index)
    row = gpus.find_gpu(str(name), total if isinstance(total, int) else None)
    capability = str(capability or (row or {}).get("compute_capability") or "")
    if _fact_at_index(facts, "gpu.mig", index) == "on":
        return str(name), capability, *_mig_slice_memory(facts, index, total)
    part = machine_names.parse_mig_slice(str(name))
    if part is not None and not isinstance(free, int):
        least, most = (int(part[2] * share * GIB) for share in SLICE_SHARE)
        return str(name), capability, (least, most), 0, "the name of the slice"
    if isinstance(total, int) and isinstance(free, int) and 0 <= free <= total:
        idle = total - free <= int(total * IDLE_SHARE)
        memory, used_memory = ((free, free), 0) if idle else ((total, total), total - free)
        return str(name), capability, memory, used_memory, facts.fact("gpu.free").source
    if row is not None:  # a machine that was described, not probed
        return str(name), capability, gpu_from_row(row).memory, 0, facts.fact("gpu.memory").source
    known = total if isinstance(total, int) else 0
    return (
        str(name),
        capability,
        (int(known * (1 - DRIVER_SHARE) - DRIVER_GIB * GIB) if known else 0, known),
        0,
        "memory only",
    )


def _mig_slice_memory(facts: Facts, index: int, total: Any) -> tuple[tuple[int, int], int, str]:
    """Return the memory range of the MIG slices of a GPU: a process may get any of them."""
    rows = facts.value_if_known("gpu.mig_devices") or ()
    sizes = [row.get("memory_total") for row in rows if isinstance(row, dict) and row.get("gpu") == index]
    known = [size for size in sizes if isinstance(size, int) and size > 0]
    if not known or len(known) != len(sizes):
        return (0, total if isinstance(total, int) else 0), 0, "in MIG mode: its slices are not told apart"
    return (min(known), max(known)), 0, facts.fact("gpu.mig_devices").source


def _fact_at_index(facts: Facts, key: str, index: int) -> Any:
    values = facts.value_if_known(key)
    return values[index] if isinstance(values, (list, tuple)) and 0 <= index < len(values) else None


def to_gpu_card(gpu: GpuCandidate) -> GpuCard:
    """Convert to the card that the engine takes."""
    return GpuCard(gpu.name, gpu.capability or "9.0", gpu.memory[0], min(gpu.held, gpu.memory[0]))


def judge_gpu(
    gpu: GpuCandidate, fit: FitPrediction, more: Iterable[str] = (), less: Iterable[str] = ()
) -> GpuCandidate:
    """Return the GPU with its verdict: ``fits`` only if its least memory covers the most that the job may need.

    ``more`` and ``less`` are uncounted features that would need more or less.
    """
    needs = fit.minimum + fit.overhead[0], fit.minimum + fit.overhead[1]
    low, high = gpu.available_memory
    verdict = "fits" if needs[1] <= low else "does not fit" if needs[0] > high else "undecided"
    if (verdict == "fits" and any(more)) or (verdict == "does not fit" and any(less)):
        verdict = "undecided"
    return gpu.replace(needs=needs, peak=fit.peak_device, verdict=verdict)
