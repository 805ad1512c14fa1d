"""Benchmark measures, the rate expected of a GPU, and the range measured on healthy GPUs."""

from __future__ import annotations

from functools import cache
from typing import Any

from gpuready.catalog import gpus, load_catalog
from gpuready.model.record import Record

FULL_LINK_LANES = 16


class MeasureSpec(Record):
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


class Band(Record):
    """The range of values measured on healthy GPUs of one kind."""

    gpu: str
    measure: str
    low: float
    high: float
    records: int
    source: str


@cache
def list_measures() -> tuple[MeasureSpec, ...]:
    """Return all measures in catalog order."""
    return tuple(MeasureSpec.from_json(row) for row in load_catalog("bands")["measure"])


def find_measure(name: str) -> MeasureSpec | None:
    return next((spec for spec in list_measures() if spec.name == name), None)


def find_band(gpu: str, measure: str, rows: list[dict[str, Any]] | None = None) -> Band | None:
    """Return the band of one measure on one GPU; None if no such GPU was measured."""
    gpu_row = gpus.find_gpu(gpu)
    name = gpu_row["name"] if gpu_row else gpu
    for row in load_catalog("bands").get("band", []) if rows is None else rows:
        if (row["gpu"], row["measure"]) == (name, measure):
            return Band.from_json(row)
    return None


def pcie_lane_rate(gen: int) -> float | None:
    """Return the bytes per second that one PCIe lane of a generation carries in one direction."""
    return next((float(row["lane"]) for row in load_catalog("bands")["link"] if row["gen"] == gen), None)


def expected_rate(spec: MeasureSpec, gpu: str, link: str = "", memory: int | None = None) -> tuple[float | None, str]:
    """Return the rate the catalog gives for a GPU and its source; None if it gives none.

    ``link`` is the best PCIe link of GPU and machine, such as ``5 x16``; used for a GPU the catalog does not know.
    """
    row = gpus.find_gpu(gpu, memory)
    if spec.figure == "nvlink":
        if row and row.get("nvlink_gbs"):
            return float(row["nvlink_gbs"]) / 2 * 1e9, f"{row['name']}: NVLink, one way"
        return _expected_pcie_rate(row, link)
    if spec.figure == "pcie":
        return _expected_pcie_rate(row, link)
    if row is None or spec.figure not in row:
        return None, ""
    return float(row[spec.figure]) * spec.scale, f"{row['name']}: {spec.figure}"


def _expected_pcie_rate(row: dict[str, Any] | None, link: str) -> tuple[float | None, str]:
    gen, width = parse_pcie_link(link)
    if row and row.get("pcie_gen"):
        gen, width = int(row["pcie_gen"]), width or FULL_LINK_LANES
    rate = pcie_lane_rate(gen)
    return (rate * width, f"PCIe {gen} x{width}") if rate and width else (None, "")


def parse_pcie_link(link: str) -> tuple[int, int]:
    """Parse generation and width: ``5 x16`` -> (5, 16); zeros for any other text."""
    generation, _, width = str(link).partition(" x")
    return (int(generation), int(width)) if generation.isdecimal() and width.isdecimal() else (0, 0)
