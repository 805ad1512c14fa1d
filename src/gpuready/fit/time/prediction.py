"""Predict the time of a job: of a step with its parts, or of the first and the later tokens."""

from __future__ import annotations

from collections.abc import Sequence

from gpuready.fit.job.records import FitJob, GpuCard
from gpuready.fit.search.prediction import cached_job_tape
from gpuready.fit.tape.autograd import Tape
from gpuready.fit.time.collectives import exposed_communication
from gpuready.fit.time.device_speed import DeviceSpeed
from gpuready.fit.time.host_pace import count_layers_of_job
from gpuready.fit.time.kernel_time import Kernel
from gpuready.fit.time.step_time import GAP, PhaseTime, split_phases, time_phases, training_phases
from gpuready.model.fit import TimePrediction

MEASURED_RANGE, SHEET_RANGE = (0.93, 1.10), (0.80, 1.30)
LAUNCH_BOUND, COMMUNICATION_BOUND = 0.25, 0.3  # shares of a step from which these are what bounds it
PHASE_PARTS = {"fwd": "forward", "bwd": "backward", "clip": "clipping", "opt": "optimizer", "ref": "reference model"}


def predict_time(job: FitJob, card: GpuCard, speed: DeviceSpeed, tape: Tape | None = None) -> TimePrediction:
    """Predict the time of a job on a card that reaches these rates; ``tape`` is that of a trace."""
    job = job.validate_fields()
    tape = cached_job_tape(job, card) if tape is None else tape
    return _predict_generation(job, tape, speed) if job.task == "generate" else _predict_training(job, tape, speed)


def _predict_training(job: FitJob, tape: Tape, speed: DeviceSpeed) -> TimePrediction:
    phases = training_phases(tape, job)
    counts = count_layers_of_job(job.model, _count_adapters(job, phases), job.checkpointing != "none")
    timed = time_phases(phases, speed, counts)
    spent: dict[str, float] = {}
    for (name, _), phase in zip(phases, timed, strict=True):
        spent[name] = spent.get(name, 0.0) + phase.seconds
    weights = sum(size for size, kind in _born_sizes(tape, ("parameters", "adapters", "gathered weights")))
    trained = _gradient_bytes(phases)
    waits = exposed_communication(job, weights or trained, trained, counts.layers, spent, speed)
    offload = _offload_seconds(job, trained, speed)
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
    """Return the range: what depends on the host or on links is less certain than what the GPU computes."""
    low, high = MEASURED_RANGE if speed.measured else SHEET_RANGE
    host = speed.pace.range
    low, high = (one + (other - one) * min(1.0, idle * 2) for one, other in zip((low, high), host, strict=True))
    return seconds * (low - 0.2 * waits), seconds * (high + 0.5 * waits)


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


def _count_adapters(job: FitJob, phases: Sequence[tuple[str, list[Kernel]]]) -> int:
    """Return the number of LoRA adapters: each has two matrices that the optimizer steps over."""
    if job.method == "full":
        return 0
    kernels = (kernel for name, kernels in phases if name == "opt" for kernel in kernels if kernel[0] == "optimizer")
    return sum(int(kernel[4]) for kernel in kernels) // 2


def _gradient_bytes(phases: Sequence[tuple[str, list[Kernel]]]) -> int:
    """Return the bytes of all gradients, by what the optimizer steps over."""
    return sum(
        int(kernel[2]) * int(kernel[3])
        for name, kernels in phases
        if name == "opt"
        for kernel in kernels
        if kernel[0] == "optimizer"
    )


def _born_sizes(tape: Tape, kinds: tuple[str, ...]) -> list[tuple[int, str]]:
    births = (event for event in tape.events if event.__class__ is not str and event >= 0)  # type: ignore[operator]
    seen = []
    for size, kind in zip(births, tape.kinds, strict=False):
        if kind not in kinds:
            break
        seen.append((int(size), kind))
    return seen


def _offload_seconds(job: FitJob, trained: int, speed: DeviceSpeed) -> float:
    """Return the copies of an offloaded optimizer: gradients to the host, weights back; the host's step beside them."""
    return 3 * trained / speed.host_to_device if job.offload in ("optimizer", "parameters") else 0.0
