"""Predict the time of a job: of a step with its parts, or of the first and the later tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile

from gpuready.fit.job.records import FitJob, GpuCard
from gpuready.fit.search.prediction import cached_job_tape
from gpuready.fit.tape.autograd import Tape
from gpuready.fit.time.device_speed import NODE_LINK, DeviceSpeed, LayerCounts, count_layers_of_job
from gpuready.fit.time.kernel_time import Kernel, kernel_seconds
from gpuready.model.fit import TimePrediction
from gpuready.model.record import Record, field

MEASURED_RANGE, SHEET_RANGE = (0.93, 1.10), (0.80, 1.30)
LAUNCH_BOUND, COMMUNICATION_BOUND = 0.25, 0.3  # shares of a step from which these are what bounds it
WEIGHTS = ("parameters", "adapters", "gathered weights")
PHASE_PARTS = {"fwd": "forward", "bwd": "backward", "clip": "clipping", "opt": "optimizer", "ref": "reference model"}


def predict_time(job: FitJob, card: GpuCard, speed: DeviceSpeed, tape: Tape | None = None) -> TimePrediction:
    """Predict the time of a job on a card that reaches these rates; ``tape`` is that of a trace."""
    job = job.validate_fields()
    tape = cached_job_tape(job, card) if tape is None else tape
    return _predict_generation(job, tape, speed) if job.task == "generate" else _predict_training(job, tape, speed)


def _predict_training(job: FitJob, tape: Tape, speed: DeviceSpeed) -> TimePrediction:
    phases = training_phases(tape, job)
    stepped = [one for name, kernels in phases if name == "opt" for one in kernels if one[0] == "optimizer"]
    adapters = 0 if job.method == "full" else sum(int(one[4]) for one in stepped) // 2  # of two matrices each
    counts = count_layers_of_job(job.model, adapters, job.checkpointing != "none")
    timed = time_phases(phases, speed, counts)
    spent: dict[str, float] = {}
    for (name, _), phase in zip(phases, timed, strict=True):
        spent[name] = spent.get(name, 0.0) + phase.seconds
    born = (event for event in tape.events if event.__class__ is not str and event >= 0)  # type: ignore[operator]
    weights = sum(
        int(size) for size, _ in takewhile(lambda one: one[1] in WEIGHTS, zip(born, tape.kinds, strict=False))
    )
    trained = sum(int(one[2]) * int(one[3]) for one in stepped)  # bytes of all gradients
    waits = exposed_communication(job, weights or trained, trained, counts.layers, spent, speed)
    # Gradients to the host, weights back; the host's step beside them.
    offload = 3 * trained / speed.host_to_device if job.offload in ("optimizer", "parameters") else 0.0
    computed = sum(spent.values())
    step = computed + waits + offload
    parts = {PHASE_PARTS[name]: seconds for name, seconds in spent.items()}
    if waits:
        parts["communication"] = waits
    if offload:
        parts["copies to the host"] = offload
    forward = [kernel for name, kernels in phases if name == "fwd" for kernel in kernels]
    operations = _operations(forward) * (3 if job.method == "full" else 2)
    tokens = job.micro_batch * job.seq * job.accumulation * (job.world // job.tensor_parallel)
    ran = sum(phase.kernels for phase in timed) + GAP * sum(len(kernels) for _, kernels in phases)
    idle = max(0.0, computed - ran) / step
    bound = _what_bounds(timed, idle, (waits + offload) / step)
    return TimePrediction(
        step_seconds=step,
        tokens_per_second=tokens / step,
        mfu=operations / step / speed.peak,
        bound_by=bound,
        range=_range(step, idle, (waits + offload) / step, speed),
        parts=parts,
    )


def _predict_generation(job: FitJob, tape: Tape, speed: DeviceSpeed) -> TimePrediction:
    recorded = split_phases(tape)
    layers = count_layers_of_job(job.model)
    prefill = time_phases([("decode", recorded.get("first token", recorded["prefill"]))], speed, layers)[0]
    tokens = [kernels for mark, kernels in recorded.items() if mark.startswith("token")]
    steps = [time_phases([("decode", kernels)], speed, layers)[0] for kernels in tokens] or [prefill]
    decode = (steps[0].seconds + steps[-1].seconds) / 2  # its length grows evenly from the first to the last
    ran = (steps[0].kernels + steps[-1].kernels) / 2
    idle = max(0.0, decode - ran - GAP * len(tokens[0] if tokens else ())) / decode
    return TimePrediction(
        prefill_seconds=prefill.seconds,
        decode_seconds=decode,
        tokens_per_second=job.micro_batch / decode,
        bound_by=_what_bounds(steps[:1], idle, 0.0),
        range=_range(decode, idle, 0.0, speed),
        parts={"first token": prefill.seconds, "later tokens": decode * max(0, job.new_tokens - 1)},
    )


def _range(seconds: float, idle: float, waits: float, speed: DeviceSpeed) -> tuple[float, float]:
    """Return the range of a job; what depends on links is the least certain."""
    low, high = step_range(seconds, idle, speed, speed.pace.range)
    return low - 0.2 * waits * seconds, high + 0.5 * waits * seconds


def step_range(seconds: float, idle: float, speed: DeviceSpeed, host: tuple[float, float]) -> tuple[float, float]:
    """Return the range of a step: what waits for the host is less certain than what the GPU computes."""
    shares = MEASURED_RANGE if speed.measured else SHEET_RANGE
    low, high = (one + (other - one) * min(1.0, idle * 2) for one, other in zip(shares, host, strict=True))
    return seconds * low, seconds * high


def _what_bounds(timed: Sequence[PhaseTime], idle: float, waits: float) -> str:
    if waits >= COMMUNICATION_BOUND:
        return "communication"
    if idle >= LAUNCH_BOUND:
        return "launches"
    products = sum(phase.parts.get(part, 0.0) for phase in timed for part in ("matmul", "attention"))
    return "matmul" if products * 2 >= sum(phase.kernels for phase in timed) else "memory"


def _operations(kernels: Sequence[Kernel]) -> float:
    """Return the operations of the products of a forward pass: causal attention counts half."""
    total = 0.0
    for kernel in kernels:
        if kernel[0] == "matmul":
            total += 2.0 * int(kernel[1]) * int(kernel[2]) * int(kernel[3]) * int(kernel[5])
        elif kernel[0] == "attention":
            total += 2.0 * int(kernel[2]) * int(kernel[3]) * int(kernel[4]) * int(kernel[5]) * int(kernel[6])
    return total


GPUS_PER_NODE = 8
LATENCY = 25e-6  # seconds of one collective inside of a node
LAST_SHARE = 0.04  # of the gradients: the last bucket, which nothing is left to hide


def exposed_communication(
    job: FitJob, weights: int, gradients: int, layers: int, spent: Mapping[str, float], speed: DeviceSpeed
) -> float:
    """Return the seconds of a step in which the GPU waits for other ranks.

    ``weights`` and ``gradients`` are the bytes of the whole model and of what is trained, ``spent`` the seconds of
    the forward and backward passes, which run at the same time.
    """
    if job.world == 1:
        return 0.0
    ranks, link = job.world // job.tensor_parallel, link_rate(job, speed)
    around = (ranks - 1) / ranks / link
    backward = spent.get("bwd", 0.0)
    waiting = tensor_parallel_seconds(job, layers, speed)
    if ranks == 1:
        return waiting
    if job.fsdp or job.zero == 3:
        gather = weights * around + layers * LATENCY
        forward = max(0.0, gather - spent.get("fwd", 0.0))
        again = gather if job.reshard or job.zero == 3 else 0.0
        return waiting + forward + max(0.0, again + gradients * around + layers * LATENCY - backward)
    reduce = 2 * gradients * around + layers * LATENCY
    last = LAST_SHARE * reduce
    if job.zero:  # shards of the weights come back after the step
        return waiting + max(last, reduce - backward) + weights * around
    return waiting + max(last, reduce - backward)


def tensor_parallel_seconds(job: FitJob, layers: int, speed: DeviceSpeed) -> float:
    """Return the seconds of the sums after attention and MLP of each layer, both ways: nothing hides them."""
    if job.tensor_parallel == 1:
        return 0.0
    hidden = int(job.model.get("hidden_size") or job.model.get("n_embd") or 4096)
    moved = job.micro_batch * job.seq * hidden * 2
    ring = 2 * (job.tensor_parallel - 1) / job.tensor_parallel
    passes = 4 if job.task == "train" else 2
    return passes * layers * (LATENCY + ring * moved / speed.link) * max(1, job.accumulation)


def link_rate(job: FitJob, speed: DeviceSpeed) -> float:
    """Return the bytes a second of the slowest link that a collective of all ranks crosses."""
    return speed.link if job.world <= GPUS_PER_NODE else min(speed.link, NODE_LINK)


GAP = 2.0e-6  # seconds between two kernels of one stream
OPTIMIZER_START = (
    0.5  # share of the host's time of an optimizer that comes before its first kernel: it sorts the tensors
)
POWER_SHARE = 0.5  # up to this share of products in the step the clock stays at its highest
PART_NAMES = {
    "matmul": "matmul", "attention": "attention", "attention backward": "attention", "optimizer": "optimizer",
    "softmax": "loss and softmax", "softmax backward": "loss and softmax", "guess": "guessed",
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
        host += speed.pace.start_seconds(name) * counts.called
        in_layers = counts if name in ("fwd", "bwd", "ref", "decode") else LayerCounts(0)
        if id(kernels) not in timed_kernels:
            timed_kernels[id(kernels)] = _KernelTimes(kernels, speed, slowdown)
        found = timed_kernels[id(kernels)]
        pace = speed.pace.pass_seconds(name, found.launches, in_layers, again) / max(1, found.launches)
        for spent, optimizer in found.rows:
            if optimizer is None:
                host += pace
                device = (host if host > device else device) + spent + GAP
            elif not spent:  # the host's own work; where it waits for the GPU, none
                host = (host if optimizer or host > device else device) + optimizer
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
                host = (
                    speed.pace.tensor_seconds(str(kernel[1]), int(kernel[3])) * int(kernel[4])
                    if kernel[0] == "optimizer"
                    else None
                )
                if kernel[0] in ("host", "wait"):
                    host = int(kernel[1]) / 1e9
                known[kernel] = (spent, host), PART_NAMES.get(str(kernel[0]), "elementwise")
            row, part = known[kernel]
            self.rows.append(row)
            self.total += row[0]
            self.parts[part] = self.parts.get(part, 0.0) + row[0]
        self.launches = sum(row[0] > 0 for row in self.rows)


def _is_hot(kernel: Kernel) -> bool:
    """Whether the kernel drives the tensor cores, which draw the most power."""
    return (kernel[0] == "matmul" and kernel[4] != 4) or str(kernel[0]).startswith("attention")


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
