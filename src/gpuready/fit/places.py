"""The GPUs that a job is judged on: of the catalogue, of a recording, of this machine; with what one process
can use.

A GPU of the catalogue has a band: a process sees less than the nominal memory, depending on driver and ECC. For
a probed GPU the free memory is used, so memory of other processes is not counted twice.
"""

from __future__ import annotations

from gpuready.catalog import gpus, load
from gpuready.fit.job import Card
from gpuready.fitted import Place

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from gpuready.fit.job import Fit
    from gpuready.model import Facts

GIB = 1 << 30
KEPT, SHARE = 0.36, 0.01
"""Most that driver and page tables take of a card, in GiB and as a share: an RTX 5090 of 32 shows 31.36 GiB, an
RTX 4060 of 8 shows 7.63, an H100 of 80 shows 79.1, an H200 of 141 shows 139.8.
"""
MOST = 0.996
"""The largest share of the nominal memory that a process sees."""
SLICE = (0.88, 0.99)
"""Share of the GB in a MIG slice's name that a process sees: of 1g.5gb 4.75 GiB, of 1g.10gb 9.5, of 1g.18gb 16."""
IDLE = 0.01
"""The largest share of an idle GPU that the driver alone uses."""


def catalogue() -> list[Place]:
    """Return every GPU of the catalogue, the smallest first."""
    rows = load("gpus")["gpu"]
    return sorted(map(of_row, rows), key=lambda place: (place.memory[1], place.capability, place.name))


def of_row(row: dict[str, Any], count: int = 1) -> Place:
    """Return ``count`` GPUs of a catalogue row."""
    box = row["vram_gib"]
    least = row.get("usable_gib") or _shown(row, box)
    words = row.get("default_for") or row.get("short") or [row["name"]]
    return Place(
        row["name"],
        row["compute_capability"],
        (int(least * GIB), int(box * MOST * GIB)),
        indexes=tuple(range(count)),
        source="catalogue",
        short=words[0],
    )


def _shown(row: dict[str, Any], box: float) -> float:
    """Return the least that a process sees of a card. ECC, on for data-centre cards, takes a sixteenth of GDDR."""
    guarded = row.get("market") == "datacenter" and "GDDR" in row.get("mem_type", "")
    return float((box * 15 / 16 if guarded else box) - KEPT - SHARE * box)


def slice_of(name: str) -> tuple[str, float] | None:
    """``h100-1g.10gb`` or ``NVIDIA A100-SXM4-40GB MIG 1g.5gb`` -> the GPU and the slice's GB; None if it is no
    slice.
    """
    import re

    found = re.search(
        r"(?<![\s:/-])[\s:/-]*(?:mig[\s:/-]{0,8})?\b\dg\.(\d{1,3})gb(?:\+me(?:\.all)?|\+gfx)?\b",
        name,
        re.IGNORECASE,
    )
    if found is None:
        return None
    return name[: found.start()] + name[found.end() :], float(found[1])


def sliced(places: Iterable[Place], size: float, called: str) -> list[Place]:
    """Return the same GPUs reduced to one MIG slice."""
    least, most = (int(size * part * GIB) for part in SLICE)
    return [place.but(name=called, memory=(least, most), source="the name of the slice") for place in places]


def of_facts(facts: Facts) -> list[Place]:
    """Group the visible GPUs of a machine or a recording."""
    shown = facts.known("gpu.visible") or () if facts.known("gpu.count") else ()
    groups: dict[tuple[Any, ...], list[int]] = {}
    for number, index in enumerate(shown):
        groups.setdefault(_looked(facts, index), []).append(number)
    return [
        Place(name, capability, memory, held, tuple(numbers), source)
        for (name, capability, memory, held, source), numbers in groups.items()
    ]


def _looked(facts: Facts, index: int) -> tuple[str, str, tuple[int, int], int, str]:
    total, free = _at(facts, "gpu.memory", index), _at(facts, "gpu.free", index)
    name, capability = _at(facts, "gpu.name", index) or "unknown GPU", _at(facts, "gpu.capability", index)
    row = gpus.find(str(name), total if isinstance(total, int) else None)
    capability = str(capability or (row or {}).get("compute_capability") or "")
    if _at(facts, "gpu.mig", index) == "on":
        return str(name), capability, *_slices(facts, index, total)
    part = slice_of(str(name))
    if part is not None and not isinstance(free, int):
        least, most = (int(part[1] * share * GIB) for share in SLICE)
        return str(name), capability, (least, most), 0, "the name of the slice"
    if isinstance(total, int) and isinstance(free, int) and 0 <= free <= total:
        idle = total - free <= int(total * IDLE)
        memory, held = ((free, free), 0) if idle else ((total, total), total - free)
        return str(name), capability, memory, held, facts.fact("gpu.free").source
    if row is not None:  # a machine that was described, not probed
        return str(name), capability, of_row(row).memory, 0, facts.fact("gpu.memory").source
    known = total if isinstance(total, int) else 0
    return (
        str(name),
        capability,
        (int(known * (1 - SHARE) - KEPT * GIB) if known else 0, known),
        0,
        "memory only",
    )


def _slices(facts: Facts, index: int, total: Any) -> tuple[tuple[int, int], int, str]:
    """Return the memory range of the MIG slices of a GPU: a process may get any of them."""
    rows = facts.known("gpu.mig_devices") or ()
    sizes = [row.get("memory_total") for row in rows if isinstance(row, dict) and row.get("gpu") == index]
    known = [size for size in sizes if isinstance(size, int) and size > 0]
    if not known or len(known) != len(sizes):
        return (0, total if isinstance(total, int) else 0), 0, "in MIG mode: its slices are not told apart"
    return (min(known), max(known)), 0, facts.fact("gpu.mig_devices").source


def _at(facts: Facts, key: str, index: int) -> Any:
    values = facts.known(key)
    return values[index] if isinstance(values, (list, tuple)) and 0 <= index < len(values) else None


def card(place: Place) -> Card:
    """Convert to the card that the engine takes."""
    return Card(place.name, place.capability or "9.0", place.memory[0], min(place.held, place.memory[0]))


def judged(place: Place, fit: Fit, more: Iterable[str] = (), less: Iterable[str] = ()) -> Place:
    """Return the GPU with its verdict: ``fits`` only if its least memory covers the most that the job may need.

    ``more`` and ``less`` are uncounted features that would need more or less.
    """
    needs = fit.minimum + fit.overhead[0], fit.minimum + fit.overhead[1]
    low, high = place.room
    verdict = "fits" if needs[1] <= low else "does not fit" if needs[0] > high else "undecided"
    if (verdict == "fits" and any(more)) or (verdict == "does not fit" and any(less)):
        verdict = "undecided"
    return place.but(needs=needs, peak=fit.peak_device, verdict=verdict)
