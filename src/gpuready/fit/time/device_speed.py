"""What a GPU reaches: from a bench record of that GPU, or from its data sheet and measured shares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuready.fit.time.host_pace import HostPace, calibrate_pace, default_pace
from gpuready.model.record import Record, field

# Shares of the data sheet that kernels reach without a bench record: measured on an H200, on others an estimate.
PEAK_SHARE, LASTING_SHARE, FP32_SHARE, MEMORY_SHARE = 0.83, 0.72, 0.78, 0.89
VALUES_PER_CYCLE = 1.61  # of one multiprocessor, by a kernel that handles one value at a time
LINK_SHARE, PCIE_SHARE = 0.75, 0.6  # of the link's rate, as collectives reach it
NODE_LINK = 50e9  # bytes a second and direction of one GPU between nodes, where nothing says otherwise: 400 Gbit/s
CORES = {"6.0": 64, "7": 64, "8.0": 64}  # of one multiprocessor; others have 128
CLOCKS = {"6": 1.4e9, "7": 1.5e9, "8.0": 1.41e9, "8.6": 1.75e9, "8.9": 2.5e9, "9": 1.98e9, "10": 1.9e9, "12": 2.4e9}
CACHES = {"8.0": 40, "8.9": 72, "9": 50, "10": 120, "12": 96}  # MiB of L2; 6 in older GPUs


class DeviceSpeed(Record):
    """Rates that kernels of a GPU reach, per second."""

    name: str
    processors: int
    matmul_16bit: float  # FLOP/s of a large product in bf16 or fp16, in a short burst
    lasting_16bit: float  # the same for seconds, at the GPU's power limit
    matmul_32bit: float  # fp32 without TF32
    memory: float  # bytes
    elements: float  # values of a kernel that handles one value at a time
    cache: int = 50 << 20  # bytes of the L2 cache
    pace: HostPace = field(default_factory=default_pace)
    link: float = 337e9  # bytes to other GPUs of the node, one direction
    peak: float = 989.4e12  # dense 16-bit FLOP/s of the data sheet
    measured: bool = False  # by a bench record
    host_to_device: float = 55e9

    def matmul_rate(self, width: int) -> float:
        return self.matmul_32bit if width == 4 else self.matmul_16bit * (1.25 if width == 1 else 1.0)


def speed_from_row(row: Mapping[str, Any]) -> DeviceSpeed | None:
    """Return the rates of a GPU of the catalogue; None where its data sheet is not known."""
    wide, narrow = row.get("fp32_tflops"), row.get("bf16_tflops") or row.get("fp16_tflops")
    moved = row.get("mem_bw_gbs")
    if not wide or not narrow or not moved:
        return None
    capability = row["compute_capability"]
    cycles = wide * 1e12 / (2 * _by_capability(CORES, capability, 128))  # of all multiprocessors, a second
    link = (row.get("nvlink_gbs") or 0.0) * 1e9 / 2 * LINK_SHARE or 2 ** (row.get("pcie_gen") or 3) * 2e9 * PCIE_SHARE
    return DeviceSpeed(
        name=row["name"],
        processors=max(1, round(cycles / _by_capability(CLOCKS, capability, 1.7e9))),
        matmul_16bit=narrow * 1e12 * PEAK_SHARE,
        lasting_16bit=narrow * 1e12 * LASTING_SHARE,
        matmul_32bit=wide * 1e12 * FP32_SHARE,
        memory=moved * 1e9 * MEMORY_SHARE,
        elements=VALUES_PER_CYCLE * cycles,
        cache=int(_by_capability(CACHES, capability, 6)) << 20,
        link=link,
        peak=narrow * 1e12,
    )


def _by_capability(table: Mapping[str, float], capability: str, default: float) -> float:
    return table.get(capability) or table.get(capability.partition(".")[0]) or default


def calibrate_speed(speed: DeviceSpeed, measures: Mapping[str, float]) -> DeviceSpeed:
    """Return the rates as a bench record of that GPU measured them."""
    narrow = measures.get("matmul-bf16") or measures.get("matmul-fp16") or speed.matmul_16bit
    lasting = measures.get("matmul-bf16-held") or narrow * speed.lasting_16bit / speed.matmul_16bit
    return speed.replace(
        matmul_16bit=narrow,
        lasting_16bit=min(lasting, narrow),
        matmul_32bit=measures.get("matmul-fp32") or speed.matmul_32bit,
        memory=measures.get("memory-copy") or speed.memory,
        pace=calibrate_pace(measures, measures.get("kernel-launch") or speed.pace.launch),
        host_to_device=measures.get("host-to-device") or speed.host_to_device,
        measured=True,
    )
