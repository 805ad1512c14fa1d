"""The time of a step: kernels that wait for the host or for each other, at the clock that the power limit allows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuready.fit.job.records import FitJob
from gpuready.fit.tape.autograd import Tape
from gpuready.fit.time.device_speed import DeviceSpeed
from gpuready.fit.time.host_pace import LayerCounts
from gpuready.fit.time.kernel_time import Kernel, kernel_seconds
from gpuready.model.record import Record, field

GAP = 2.0e-6  # seconds between two kernels of one stream
OPTIMIZER_START = (
    0.5  # share of the host's time of an optimizer that comes before its first kernel: it sorts the tensors
)
POWER_SHARE = 0.5  # up to this share of products in the step the clock stays at its highest
PART_NAMES = {
    "matmul": "matmul", "attention": "attention", "attention backward": "attention", "optimizer": "optimizer",
    "softmax": "loss and softmax", "softmax backward": "loss and softmax",
}  # fmt: skip


class PhaseTime(Record):
    """One phase: when the host and the GPU are done with it, and what the kernels took."""

    seconds: float
    kernels: float  # seconds in which kernels ran
    host: float  # seconds that the host needs to launch them
    parts: Mapping[str, float] = field(default_factory=dict)  # kernel seconds by name


def split_phases(tape: Tape) -> dict[str, list[Kernel]]:
    """Return the kernels of every phase by its mark."""
    phases: dict[str, list[Kernel]] = {}
    current: list[Kernel] = []
    for kernel in tape.kernels:
        if kernel[0] == "phase":
            phases.setdefault(str(kernel[1]), []).extend(current)
            current = []
        else:
            current.append(kernel)
    return phases


def time_phases(phases: Iterable[tuple[str, list[Kernel]]], speed: DeviceSpeed, counts: LayerCounts) -> list[PhaseTime]:
    """Run phases one after the other through two queues: the host launches, the GPU computes."""
    phases = list(phases)
    forward = next((len(kernels) for name, kernels in phases if name == "fwd"), 0) if counts.checkpointed else 0
    slowdown = _power_slowdown([kernels for _, kernels in phases], speed)
    timed_kernels: dict[int, _KernelTimes] = {}  # by the list of kernels: micro-steps share one
    host = device = 0.0
    timed: list[PhaseTime] = []
    for name, kernels in phases:
        begun, launched = max(host, device), host
        again = forward if name == "bwd" else 0
        host += speed.pace.start_seconds(name)
        pace = speed.pace.pass_seconds(name, len(kernels), counts, again) / len(kernels)
        if id(kernels) not in timed_kernels:
            timed_kernels[id(kernels)] = _KernelTimes(kernels, speed, slowdown)
        found = timed_kernels[id(kernels)]
        for spent, optimizer in found.rows:
            if optimizer is None:
                host += pace
                device = (host if host > device else device) + spent + GAP
            else:
                device = max(device, host + OPTIMIZER_START * optimizer) + spent + GAP
                host += optimizer
                device = max(device, host)
        timed.append(PhaseTime(max(host, device) - begun, found.total, host - launched, dict(found.parts)))
    return timed


class _KernelTimes:
    """A list of kernels: the seconds of each, with what an optimizer's needs of the host, and their sums."""

    def __init__(self, kernels: list[Kernel], speed: DeviceSpeed, slowdown: float) -> None:
        known: dict[Kernel, tuple[tuple[float, float | None], str]] = {}
        self.rows: list[tuple[float, float | None]] = []
        self.total, self.parts = 0.0, {}  # type: float, dict[str, float]
        for kernel in kernels:
            if kernel not in known:
                spent = kernel_seconds(kernel, speed) * (slowdown if _is_hot(kernel) else 1.0)
                host = _optimizer_host(kernel, speed) if kernel[0] == "optimizer" else None
                known[kernel] = (spent, host), PART_NAMES.get(str(kernel[0]), "elementwise")
            row, part = known[kernel]
            self.rows.append(row)
            self.total += row[0]
            self.parts[part] = self.parts.get(part, 0.0) + row[0]


def _is_hot(kernel: Kernel) -> bool:
    """Whether the kernel drives the tensor cores, which draw the most power."""
    return (kernel[0] == "matmul" and kernel[4] != 4) or str(kernel[0]).startswith("attention")


def _optimizer_host(kernel: Kernel, speed: DeviceSpeed) -> float:
    return speed.pace.tensor_seconds(str(kernel[1])) * int(kernel[4])


def _power_slowdown(phases: list[list[Kernel]], speed: DeviceSpeed) -> float:
    """Return how much longer products take: where they fill the step, the GPU lowers its clock to hold its power."""
    hot = total = 0.0
    known: dict[Kernel, tuple[float, float]] = {}
    rows_of: dict[int, list[tuple[float, float]]] = {}
    for kernels in phases:
        if id(kernels) not in rows_of:
            for kernel in {*kernels} - known.keys():
                spent = kernel_seconds(kernel, speed)
                known[kernel] = spent, spent * _is_hot(kernel)
            rows_of[id(kernels)] = [known[kernel] for kernel in kernels]
        for spent, hot_spent in rows_of[id(kernels)]:
            total += spent
            hot += hot_spent
    share = max(0.0, (hot / total - POWER_SHARE) / (1 - POWER_SHARE)) if total else 0.0
    return 1 + share * (speed.matmul_16bit / speed.lasting_16bit - 1)


def training_phases(tape: Tape, job: FitJob) -> list[tuple[str, list[Kernel]]]:
    """Return the phases of one optimizer step; micro-steps after the first are like the second."""
    recorded = split_phases(tape)
    micro = ["0"] if job.accumulation == 1 else ["0.0", *["0.1"] * (job.accumulation - 1)]
    order = [(name, f"{name}{tag}") for tag in micro for name in ("ref", "fwd", "bwd")]
    order += [("clip", "clip1"), ("opt", "opt1")]
    return [(name, recorded[mark]) for name, mark in order if recorded.get(mark)]
