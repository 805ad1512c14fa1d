"""Predict a job's memory: record its tape, replay it, and list what is live at the peak."""

import gc
from typing import Any, TypeVar

from gpuready.catalog import load_catalog
from gpuready.fit.allocator.alloc_conf import NO_LIMIT, AllocatorSettings
from gpuready.fit.job.records import FitJob, FitPrediction, GpuCard
from gpuready.fit.search.minimum_reserve import PHASE_TITLES, TapeReplay, find_minimum_reserve
from gpuready.fit.tape.autograd import Tape
from gpuready.fit.tape.generation import GenerationRun, ScoringRun
from gpuready.fit.tape.training import TrainingRun, cublas_workspace_size

MIB = 1 << 20
Label = TypeVar("Label", str, int)


def record_job_tape(job: FitJob, card: GpuCard) -> Tape:
    """Return the tape of a job. Cyclic garbage collection is off: it would run often and find nothing that counts."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        tape = _make_run(job, card).record_tape()
        tape.events = tape.events[:]  # later frees do not belong to the job
        return tape
    finally:
        if collecting:
            gc.enable()


def _make_run(job: FitJob, card: GpuCard) -> TrainingRun | GenerationRun | ScoringRun:
    job = job.played_batch()
    if job.task == "train":
        return TrainingRun(job, card)
    workspace = cublas_workspace_size(card)
    return GenerationRun(job, card, workspace) if job.task == "generate" else ScoringRun(job, card, workspace)


def predict_job(job: FitJob, card: GpuCard, search: bool = True, most: int = NO_LIMIT) -> FitPrediction:
    """Predict a job's memory; without ``search`` the minimum is the unlimited reserve.

    The search stops once the minimum is known to exceed ``most``.
    """
    job = job.validate_fields()
    # A search asks without the minimum first, then with it.
    if not _LAST_PREDICTION or _LAST_PREDICTION[0] != (job, card):
        tape = cached_job_tape(job, card)
        _LAST_PREDICTION[:] = [(job, card), tape, TapeReplay(tape, AllocatorSettings.parse_alloc_conf(job.alloc_conf))]
    return fit_from_tape(job, card, _LAST_PREDICTION[1], search, _LAST_PREDICTION[2], most)


_LAST_PREDICTION: list[Any] = []
"""The last job and card, its tape and its replay."""
_RECENT_TAPES: list[tuple[FitJob, GpuCard, Tape]] = []
"""The last tapes: a search asks again with other allocator settings, and then for the time of what it found."""
MAX_KEPT_EVENTS = 1_000_000
"""Events of all tapes that are kept, about 60 MB; the last three are kept however long they are."""


def cached_job_tape(job: FitJob, card: GpuCard) -> Tape:
    """Return the tape of a job; allocator settings and micro-steps after the second do not change it."""
    job = job.replace(alloc_conf="", accumulation=min(job.accumulation, 2))
    # What a tape depends on: kernels go by the capability, and only ZeRO 1 and 2 look at the memory.
    card = card.replace(name="") if job.zero in (1, 2) else GpuCard("", card.capability, 0)
    for other_job, other_card, tape in _RECENT_TAPES:
        if (other_job, other_card) == (job, card):
            return tape
    tape = record_job_tape(job, card)
    _RECENT_TAPES.insert(0, (job, card, tape))
    while len(_RECENT_TAPES) > 3 and sum(len(kept.events) for _, _, kept in _RECENT_TAPES) > MAX_KEPT_EVENTS:
        _RECENT_TAPES.pop()
    return tape


def fit_from_tape(
    job: FitJob,
    card: GpuCard,
    tape: Tape,
    search: bool = True,
    free_replay: TapeReplay | None = None,
    most: int = NO_LIMIT,
) -> FitPrediction:
    """Predict from a tape; ``free_replay`` is its unlimited replay, if already made."""
    settings = AllocatorSettings.parse_alloc_conf(job.alloc_conf)
    free_replay = free_replay or TapeReplay(tape, settings)
    minimum = find_minimum_reserve(tape, settings, free_replay, most) if search else free_replay.peak_reserved
    phase_peaks = find_phase_peaks(tape) if search else {}
    live_sizes = live_by_label(tape, tape.kinds, sorted({free_replay.peak_event + 1, *phase_peaks.values()}))
    return FitPrediction(
        peak_allocated=free_replay.peak,
        peak_reserved=free_replay.peak_reserved,
        minimum=minimum,
        overhead=context_overhead(job, card),
        parts=live_sizes[free_replay.peak_event + 1],
        phases=free_replay.phases,
        peak_at=free_replay.locate_peak(tape),
        notes=tuple(prediction_notes(job, card)),
        stacks={name: live_sizes[end] for name, end in phase_peaks.items()},
    )


def find_phase_peaks(tape: Tape) -> dict[str, int]:
    """Return the number of events up to the peak of each phase; of several steps the highest."""
    highest: dict[str, tuple[int, int]] = {}  # phase -> the sum, and the number of events up to it
    for mark, most, at in _scan_phase_peaks(tape):
        name = PHASE_TITLES.get(mark.rstrip("0123456789."), mark)
        if mark not in ("load", "build") and most > highest.get(name, (0, 0))[0]:
            highest[name] = most, at
    return {name: end for name, (_, end) in highest.items()}


def phase_peak_sizes(job: FitJob, card: GpuCard) -> dict[str, int]:
    """Return the highest sum of live tensors in each phase: the allocation without block rounding."""
    return {mark: most for mark, most, _ in _scan_phase_peaks(record_job_tape(job.validate_fields(), card))[1:]}


def _scan_phase_peaks(tape: Tape) -> list[tuple[str, int, int]]:
    """Return for each phase its mark, its highest live sum, and the number of events up to it."""
    peaks: list[tuple[str, int, int]] = []
    sizes: list[int] = []
    live = most = at = 0
    for index, event in enumerate(tape.events):
        if event.__class__ is str:
            peaks.append((str(event), most, at))
            most, at = live, index
        elif event >= 0:  # type: ignore[operator]
            sizes.append(-(-event // 512) * 512)  # type: ignore[operator]
            live += sizes[-1]
            if live > most:
                most, at = live, index + 1
        else:
            live -= sizes[~event]  # type: ignore[operator]
    return peaks


def live_by_label(tape: Tape, labels: list[Label], ends: list[int]) -> dict[int, dict[Label, int]]:
    """Return what is live after each of these numbers of events, by the labels of the allocations, the largest first."""
    sizes: list[int] = []
    by_kind: dict[Label, int] = {}
    snapshots: dict[int, dict[Label, int]] = {}
    start = 0
    for end in ends:
        for event in tape.events[start:end]:
            if event.__class__ is str:
                continue
            if event >= 0:  # type: ignore[operator]
                size = -(-event // 512) * 512  # type: ignore[operator]
                kind = labels[len(sizes)]
                sizes.append(size)
                by_kind[kind] = by_kind.get(kind, 0) + size
            else:
                by_kind[labels[~event]] -= sizes[~event]  # type: ignore[operator]
        start = end
        snapshots[end] = dict(sorted(((k, v) for k, v in by_kind.items() if v), key=lambda one: -one[1]))
    return snapshots


def context_overhead(job: FitJob, card: GpuCard) -> tuple[int, int]:
    """Return the memory of context and libraries outside the allocator: at least, at most."""
    data = load_catalog("overheads")
    rows = {row["major"]: row for row in data["overhead"]}
    major = int(card.capability.partition(".")[0])
    row = rows.get(major) or rows[max(rows)]
    low, high = row["train" if job.task == "train" else "generate"]
    if job.world > 1:
        low, high = low + data["nccl"]["least"], high + data["nccl"]["most"]
    return low * MIB, high * MIB


def prediction_notes(job: FitJob, card: GpuCard) -> list[str]:
    """Return notes on the limits of the numbers."""
    sentences = []
    if not card.capability.startswith("9."):
        sentences.append(
            "the memory of CUDA and its libraries was measured only on Hopper: an estimated range on this GPU"
        )
    if job.world > 1:
        sentences.append(
            "NCCL's buffers were not measured: an estimated range; inside it the answer is too close to call"
        )
    if job.quant in ("nf4", "fp4") and job.world > 1 and (job.fsdp or job.zero == 3):
        sentences.append(
            "the 4-bit weights are shared too, which needs a floating bnb_4bit_quant_storage, such as bfloat16: "
            "with uint8 every GPU has all of them"
        )
    if job.context_parallel > 1:
        sentences.append("the exchange of keys and values between the ranks of a sequence is not counted")
    if job.optimizer.startswith("paged"):
        sentences.append("a paged optimizer keeps its state in managed memory, which can move out: it is not counted")
    if job.quant == "int8":
        sentences.append("how many outliers an 8-bit layer keeps depends on the data; they are estimated")
    return sentences
