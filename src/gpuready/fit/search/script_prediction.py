"""Predict from the recording of a user's own script (scripts/watch.py): its allocations, and its kernels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from gpuready.fit.allocator.alloc_conf import AllocatorSettings
from gpuready.fit.allocator.caching_allocator import replay_tape
from gpuready.fit.job.records import FitJob, FitPrediction, GpuCard
from gpuready.fit.search.minimum_reserve import TapeReplay
from gpuready.fit.search.prediction import fit_from_tape, live_by_label
from gpuready.fit.search.traced_prediction import MAX_TRACE_EVENTS, read_traced_kernels
from gpuready.fit.tape.autograd import Tape, TapeMemory
from gpuready.fit.tape.torch_ops import TorchOps
from gpuready.fit.tape.training import cublas_workspace_size
from gpuready.fit.time.device_speed import LAYER_KERNELS, DeviceSpeed, LayerCounts
from gpuready.fit.time.kernel_time import Kernel
from gpuready.fit.time.prediction import LAUNCH_BOUND, PHASE_PARTS, split_phases, step_range, time_phases
from gpuready.model.fit import TimePrediction
from gpuready.model.record import Record

SCRIPT_PHASES = ("build", "fwd", "bwd", "clip", "opt", "zero", "empty")
SCRIPT_FIELDS: dict[str, Any] = {
    "events": list, "by": list, "names": list, "lines": list, "places": list, "kinds": list, "kernels": list, "steps": int, "optimizers": list, "versions": dict,
    "notes": list, "unmodelled": list, "lessened": list, "assumed": list, "larger": list, "error": str, "traceback": str, "alloc_conf": str, "tried": int, "loader_seconds": (int, float),
}  # fmt: skip
MOST_LINES = 8
SCRIPT_HOST_RANGE = (0.5, 2.2)
"""The range of the host's pace in a script: its modules are not those that the pace was measured with (scripts on an H200)."""
STILL_GROWS = 1.05  # of what was reserved after half of the steps
MOST_GUESSED, GUESS_RANGE = 0.03, (0.5, 8.0)  # of a step with a point; how much less and more such kernels take
UNMEASURED = "a range alone: a part of its kernels was never measured"
# Seconds of the host's own work that do not count; the share of a step that bounds it.
SHORT_WORK, HOST_BOUND = (1e-3, 0.25)


class ScriptTape(Tape):
    """A tape with the line of code of every allocation; -1 for what CUDA's libraries take."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[int] = []


def validate_recording(reply: Any) -> dict[str, Any]:
    """Validate the form of a recording from another process; ValueError if it is invalid."""
    if not isinstance(reply, dict) or not all(isinstance(reply.get(k), t) for k, t in SCRIPT_FIELDS.items()):
        raise ValueError("the recording of the script is not one")
    births = sum(1 for event in reply["events"] if type(event) is int and event >= 0)
    freed = [~event for event in reply["events"] if type(event) is int and event < 0]
    words = {str(event).rstrip("0123456789.") for event in reply["events"] if not isinstance(event, int)}
    sound = all(n < births for n in freed) and len(reply["by"]) == len(reply["lines"]) == births <= MAX_TRACE_EVENTS
    if not all(type(one) is int for one in reply["optimizers"]):
        raise ValueError("the recording of the script does not say which optimizers stepped")
    if not sound or not words <= {*SCRIPT_PHASES, "!product", "!biased"}:
        raise ValueError("the recording of the script does not add up")
    return reply


def tape_from_script(reply: Mapping[str, Any], card: GpuCard) -> ScriptTape:
    """Return the recorded allocations, with the workspaces of cuBLAS, which torch does not show."""
    made = ScriptTape()
    ops = TorchOps(made, workspace=cublas_workspace_size(card))
    kinds, names = dict(reply["kinds"]), reply["names"]
    born: dict[int, TapeMemory] = {}
    births = 0
    for event in reply["events"]:
        if isinstance(event, str):
            _apply_word(event, ops)
            made.lines += [-1] * (len(made.kinds) - len(made.lines))
        elif event >= 0:
            made.op, made.kind = names[reply["by"][births]], kinds.get(births, "activations")
            born[births] = TapeMemory(made, event)
            made.lines.append(reply["lines"][births])
            births += 1
        else:
            born.pop(~event, None)
    made.events = made.events[:]  # what is freed with this function is no event of the script
    made.kernels = read_traced_kernels(reply["kernels"])
    return made


def _apply_word(word: str, ops: TorchOps) -> None:
    if word[0] == "!":
        ops.ensure_bias_workspace() if word == "!biased" else ops.ensure_workspace()
    else:
        ops.tape.events.append(word)
        ops.in_backward = word.startswith("fwd")


def predict_script(
    job: FitJob, card: GpuCard, tape: ScriptTape, search: bool = True
) -> tuple[FitPrediction, dict[int, int]]:
    """Return the memory of a recorded script, and the bytes live at its peak by line of code."""
    replay = TapeReplay(tape, AllocatorSettings.parse_alloc_conf(job.alloc_conf))
    end = replay.peak_event + 1
    return fit_from_tape(job, card, tape, search, replay), live_by_label(tape, tape.lines, [end])[end]


def describe_growth(tape: ScriptTape, reserved: int, alloc_conf: str, steps: int) -> tuple[str, ...]:
    """Say what was reserved after half of the steps, where batches of new sizes let it grow since."""
    half = tape.events.index(f"zero{steps // 2}") if f"zero{steps // 2}" in tape.events else len(tape.events)
    before = replay_tape(tape.events[:half], AllocatorSettings.parse_alloc_conf(alloc_conf)).peak_reserved
    grown = f"{before / 2**30:.1f} GiB after {steps // 2} steps, {reserved / 2**30:.1f} after {steps}"
    return (f"reserved memory grows with new sizes of batches: {grown}",) * (before * STILL_GROWS < reserved)


def predict_script_time(
    tape: Tape, speed: DeviceSpeed, loader: float = 0.0, optimizers: Sequence[int] = ()
) -> TimePrediction | None:
    """Return the median time of a step, with several optimizers of a round of them; None where the script made fewer than two.

    ``loader`` is what the processes that load data take for a step. The host's own work was timed on this machine: another takes
    less, or up to twice as long, and the range has both. ``optimizers``: which one made each step. Where the GPU waits for the
    host there is a range alone.
    """
    recorded = split_phases(tape)
    rounds = _list_rounds(sorted({int(mark[3:]) for mark in recorded if mark.startswith("opt")}), optimizers)[1:]
    timed = [one for steps in rounds if (one := _time_step(recorded, steps, speed))]
    if not timed:
        return None
    middle = median(one.seconds for one in timed)
    step = min(timed, key=lambda one: abs(one.seconds - middle))
    low, high = step_range(1.0, 0.0, speed, SCRIPT_HOST_RANGE)
    for pace, work in zip(SCRIPT_HOST_RANGE, (0.0, 2.0), strict=True):
        host = speed.replace(pace=speed.pace.scale(pace))
        other = _time_step(recorded, step.steps, host, work if step.host_work > SHORT_WORK else 1.0)
        seconds = step.seconds if other is None else other.seconds
        low, high = (low * seconds, high) if pace < 1 else (low, max(high * seconds, 2 * loader))
    low, high = low - GUESS_RANGE[0] * step.guessed, high + GUESS_RANGE[1] * step.guessed
    made = TimePrediction(
        range=(low, high),
        notes=(f"a step is a round of the script's {len(set(optimizers))} optimizers",) if len(step.steps) > 1 else (),
    )
    if loader <= step.seconds and step.idle <= LAUNCH_BOUND and step.guessed <= MOST_GUESSED * step.seconds:
        return made.replace(step_seconds=step.seconds, parts=step.parts, bound_by="memory")
    if loader <= step.seconds and step.idle <= LAUNCH_BOUND:
        return made.replace(bound_by="memory", notes=(*made.notes, UNMEASURED))
    waits = loader > step.seconds or step.host_work > HOST_BOUND * step.seconds
    return made.replace(bound_by="host" if waits else "launches")


def _list_rounds(steps: Sequence[int], optimizers: Sequence[int]) -> list[frozenset[int]]:
    """Return the steps that belong together: a round ends with the optimizer that steps least often, of several the last."""
    if len(set(optimizers)) < 2 or len(optimizers) < len(steps):
        return [frozenset((step,)) for step in steps]
    last = min(reversed(list(dict.fromkeys(optimizers))), key=optimizers.count)
    ends = [step for step in steps if optimizers[step] == last]
    return [frozenset(range(before + 1, end + 1)) for before, end in zip([-1, *ends], ends, strict=False)]


class ScriptStep(Record):
    """A step, or a round: its seconds, those of its phases, the share in which the GPU waits, the seconds of the host's own work, and of kernels that were not measured."""

    steps: frozenset[int]
    seconds: float
    parts: Mapping[str, float]
    idle: float
    host_work: float
    guessed: float


def _time_step(
    recorded: Mapping[str, list[Kernel]], steps: frozenset[int], speed: DeviceSpeed, host_share: float = 1.0
) -> ScriptStep | None:
    phases = [
        (
            mark[:3] if mark[:3] != "cli" else "clip",
            [("host", int(int(one[1]) * host_share)) if one[0] == "host" else one for one in kernels],
        )
        for mark, kernels in recorded.items()
        if kernels and _step_of(mark) in steps
    ]
    if not phases:
        return None
    forward = sum(len(kernels) for name, kernels in phases if name == "fwd")
    counts = LayerCounts(
        max(1, round(forward / max(1, sum(name == "fwd" for name, _ in phases)) / LAYER_KERNELS["fwd"])), called=False
    )
    timed = time_phases(phases, speed, counts)
    parts: dict[str, float] = {}
    for (name, _), one in zip(phases, timed, strict=True):
        parts[PHASE_PARTS[name]] = parts.get(PHASE_PARTS[name], 0.0) + one.seconds
    spent = sum(parts.values())
    idle = max(0.0, spent - sum(one.kernels for one in timed)) / (spent or 1.0)
    work = sum(int(kernel[1]) for _, kernels in phases for kernel in kernels if kernel[0] == "host") / 1e9
    guessed = sum(one.parts.get("guessed", 0.0) for one in timed)
    return ScriptStep(steps=steps, seconds=spent, parts=parts, idle=idle, host_work=work, guessed=guessed)


def _step_of(mark: str) -> int:
    digits = mark.lstrip("abcdefghijklmnopqrstuvwxyz").partition(".")[0]
    return int(digits) if digits.isdigit() else -1
