"""Benchmark measures, the rate expected of a GPU, and the range measured on healthy GPUs."""

from __future__ import annotations

from gpuready.catalog import gpus, load, remembered
from gpuready.noun import Noun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LANES = 16


class Kind(Noun):
    """One measure of the catalog; bands.toml describes each column."""

    name: str
    says: str
    unit: str
    device: str  # cuda, cpu, any
    group: str
    source: str
    figure: str = ""
    scale: float = 1.0
    better: str = "more"
    gpus: int = 0
    executed: str = ""


class Band(Noun):
    """The range of values measured on healthy GPUs of one kind."""

    gpu: str
    measure: str
    low: float
    high: float
    records: int
    source: str


@remembered
def every() -> tuple[Kind, ...]:
    """Return all measures in catalog order."""
    return tuple(Kind.from_json(row) for row in load("bands")["measure"])


def named(name: str) -> Kind | None:
    return next((kind for kind in every() if kind.name == name), None)


def band(gpu: str, measure: str, rows: list[dict[str, Any]] | None = None) -> Band | None:
    """Return the band of one measure on one GPU; None if no such GPU was measured."""
    found = gpus.find(gpu)
    name = found["name"] if found else gpu
    for row in load("bands").get("band", []) if rows is None else rows:
        if (row["gpu"], row["measure"]) == (name, measure):
            return Band.from_json(row)
    return None


def lane(gen: int) -> float | None:
    """Return the bytes per second that one PCIe lane of a generation carries in one direction."""
    return next((float(row["lane"]) for row in load("bands")["link"] if row["gen"] == gen), None)


def expected(kind: Kind, gpu: str, link: str = "", memory: int | None = None) -> tuple[float | None, str]:
    """Return the rate the catalog gives for a GPU and its source; None if it gives none.

    ``link`` is the best PCIe link of GPU and machine, such as ``5 x16``; used for a GPU the catalog does not know.
    """
    row = gpus.find(gpu, memory)
    if kind.figure == "nvlink":
        if row and row.get("nvlink_gbs"):
            return float(row["nvlink_gbs"]) / 2 * 1e9, f"{row['name']}: NVLink, one way"
        return _pcie(row, link)
    if kind.figure == "pcie":
        return _pcie(row, link)
    if row is None or kind.figure not in row:
        return None, ""
    return float(row[kind.figure]) * kind.scale, f"{row['name']}: {kind.figure}"


def _pcie(row: dict[str, Any] | None, link: str) -> tuple[float | None, str]:
    gen, width = parsed(link)
    if row and row.get("pcie_gen"):
        gen, width = int(row["pcie_gen"]), width or LANES
    rate = lane(gen)
    return (rate * width, f"PCIe {gen} x{width}") if rate and width else (None, "")


def parsed(link: str) -> tuple[int, int]:
    """Parse generation and width: ``5 x16`` -> (5, 16); zeros for any other text."""
    generation, _, width = str(link).partition(" x")
    return (int(generation), int(width)) if generation.isdecimal() and width.isdecimal() else (0, 0)
