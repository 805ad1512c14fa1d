"""What a GPU reaches: from a bench record of that GPU, or from its data sheet and measured shares."""

from __future__ import annotations

from gpuready.model.record import Record

TYPE_CHECKING = False


class DeviceSpeed(Record):
    """Rates that kernels of that GPU reach, per second."""

    name: str
    processors: int
    matmul_16bit: float  # FLOP/s of a large product in bf16 or fp16, in a short burst
    held_16bit: float  # the same for seconds, at the GPU's power limit
    matmul_32bit: float  # fp32 without TF32
    memory: float  # bytes
    elements: float  # values of a kernel that handles one value at a time
    cache: int = 50 << 20  # bytes of the L2 cache
    launch: float = 8.6e-6  # seconds of the host per kernel launch
    measured: bool = True  # by a bench record

    def matmul_rate(self, width: int) -> float:
        return self.matmul_32bit if width == 4 else self.matmul_16bit * (1.25 if width == 1 else 1.0)


H200_SPEED = DeviceSpeed("NVIDIA H200", 132, 826e12, 689e12, 52.3e12, 4.25e12, 0.42e12)
