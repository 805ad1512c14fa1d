"""Predict a job's memory: record its tape, replay it, and list what is live at the peak."""

from __future__ import annotations

from itertools import islice

from gpuready.fit.allocator import Allocator
from gpuready.fit.generation import Generation
from gpuready.fit.job import Card, Fit, Job
from gpuready.fit.settings import NO_LIMIT, Settings
from gpuready.fit.survival import smallest
from gpuready.fit.training import Training, workspace_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.fit.blocks import Block
    from gpuready.fit.tensor import Tape

MIB = 1 << 20


def record(job: Job, card: Card) -> Tape:
    """Return the tape of a job. Cyclic garbage collection is off: it would run often and find nothing that counts."""
    import gc

    collecting = gc.isenabled()
    gc.disable()
    try:
        played = Generation(job, card, workspace_of(card)) if job.task == "generate" else Training(job, card)
        tape = played.record()
        tape.events = tape.events[:]  # later frees do not belong to the job
        return tape
    finally:
        if collecting:
            gc.enable()


def predict(job: Job, card: Card, search: bool = True, most: int = NO_LIMIT) -> Fit:
    """Predict a job's memory; without ``search`` the minimum is the unlimited reserve.

    The search stops once the minimum is known to exceed ``most``.
    """
    job = job.checked()
    if not _LAST or _LAST[0] != (job, card):  # a search asks without the minimum first, then with it
        tape = _recorded(job, card)
        _LAST[:] = [(job, card), tape, Replay(tape, Settings.parse(job.alloc_conf))]
    return fitted(job, card, _LAST[1], search, _LAST[2], most)


_LAST: list[Any] = []
"""The last job and card, its tape and its replay."""
_TAPES: list[tuple[Job, Card, Tape]] = []
"""The last few tapes: a search asks again with other allocator settings."""


def _recorded(job: Job, card: Card) -> Tape:
    """Return the tape of a job; allocator settings and micro-steps after the second do not change it."""
    job = job.but(alloc_conf="", accumulation=min(job.accumulation, 2))
    for asked, where, tape in _TAPES:
        if (asked, where) == (job, card):
            return tape
    tape = record(job, card)
    _TAPES[:] = [(job, card, tape), *_TAPES[:2]]
    return tape


def fitted(
    job: Job, card: Card, tape: Tape, search: bool = True, free: Replay | None = None, most: int = NO_LIMIT
) -> Fit:
    """Predict from a tape; ``free_replay`` is its unlimited replay, if already made."""
    settings = Settings.parse(job.alloc_conf)
    free = free or Replay(tape, settings)
    minimum = smallest(tape, settings, free, most) if search else free.peak_reserved
    highest = summits(tape) if search else {}
    lived = _living(tape, sorted({free.at + 1, *highest.values()}))
    return Fit(
        peak_allocated=free.peak,
        peak_reserved=free.peak_reserved,
        minimum=minimum,
        overhead=overhead(job, card),
        parts=lived[free.at + 1],
        phases=free.phases,
        peak_at=free.where(tape),
        notes=tuple(notes(job, card)),
        stacks={name: lived[end] for name, end in highest.items()},
    )


class Replay:
    """A replay without a cap: the peak of every phase, and where the highest is.

    Memory cached while loading the weights is released, as the loaders do; what DeepSpeed frees later, during
    its setup, stays cached.
    """

    def __init__(self, tape: Tape, settings: Settings) -> None:
        allocator = Allocator(settings, streams=tape.streams)
        self.phases: dict[str, int] = {}
        self.peak = births = start = 0
        blocks: list[Block | None] = []
        begun = emptied = False
        marks = [(at, event) for at, event in enumerate(tape.events) if event.__class__ is str]
        for end, event in (*marks, (len(tape.events), "")):
            before, allocator.peak = allocator.allocated, 0
            allocator.play(tape.events[start:end], blocks)  # type: ignore[arg-type]
            start = end + 1
            if allocator.peak > self.peak:
                self.peak, births = allocator.peak, allocator.at
            if begun:
                self.phases[str(event)] = max(before, allocator.peak)
            else:
                loaded = allocator.small
                allocator.empty()
                begun, self.peak = True, 0
                emptied = allocator.small != loaded
        self.phases.pop("", None)  # events after the last mark
        self.at = _birth(tape, births)
        self.peak_reserved = allocator.peak_reserved
        # without an emptied cache, a separate replay of the small pool gives the same size
        self.small = None if emptied or settings.but(expandable=False) != Settings() else allocator.small

    def where(self, tape: Tape) -> tuple[str, str]:
        """Return phase and operation of the peak."""
        births = sum(1 for e in tape.events[: self.at + 1] if e.__class__ is not str and e >= 0)  # type: ignore[misc, operator]
        phase = next((e for e in tape.events[self.at :] if e.__class__ is str), "")
        return PHASES.get(str(phase).rstrip("0123456789."), str(phase)), tape.ops[
            births - 1
        ] if births else ""


def _birth(tape: Tape, number: int) -> int:
    """Return the position on the tape of the n-th allocation."""
    at = (at for at, event in enumerate(tape.events) if event.__class__ is not str and event >= 0)  # type: ignore[operator]
    return next(islice(at, number - 1, None), 0) if number else 0


def summits(tape: Tape) -> dict[str, int]:
    """Return the number of events up to the peak of each phase; of several steps the highest."""
    highest: dict[str, tuple[int, int]] = {}  # phase -> the sum, and the number of events up to it
    for mark, most, at in _crests(tape):
        name = PHASES.get(mark.rstrip("0123456789."), mark)
        if mark not in ("load", "build") and most > highest.get(name, (0, 0))[0]:
            highest[name] = most, at
    return {name: end for name, (_, end) in highest.items()}


def heights(job: Job, card: Card) -> dict[str, int]:
    """Return the highest sum of live tensors in each phase: the allocation without block rounding."""
    return {mark: most for mark, most, _ in _crests(record(job.checked(), card))[1:]}


def _crests(tape: Tape) -> list[tuple[str, int, int]]:
    """Return for each phase its mark, its highest live sum, and the number of events up to it."""
    found: list[tuple[str, int, int]] = []
    sizes: list[int] = []
    live = most = at = 0
    for index, event in enumerate(tape.events):
        if event.__class__ is str:
            found.append((str(event), most, at))
            most, at = live, index
        elif event >= 0:  # type: ignore[operator]
            sizes.append(-(-event // 512) * 512)  # type: ignore[operator]
            live += sizes[-1]
            if live > most:
                most, at = live, index + 1
        else:
            live -= sizes[~event]  # type: ignore[operator]
    return found


def _living(tape: Tape, ends: list[int]) -> dict[int, dict[str, int]]:
    """Return what is live after each of these numbers of events, by kind, the largest first."""
    sizes: list[int] = []
    found: dict[str, int] = {}
    lived: dict[int, dict[str, int]] = {}
    kinds, start = tape.kinds, 0
    for end in ends:
        for event in tape.events[start:end]:
            if event.__class__ is str:
                continue
            if event >= 0:  # type: ignore[operator]
                size = -(-event // 512) * 512  # type: ignore[operator]
                kind = kinds[len(sizes)]
                sizes.append(size)
                found[kind] = found.get(kind, 0) + size
            else:
                found[kinds[~event]] -= sizes[~event]  # type: ignore[operator]
        start = end
        lived[end] = dict(sorted(((k, v) for k, v in found.items() if v), key=lambda one: -one[1]))
    return lived


PHASES = {
    "build": "setting up",
    "fwd": "forward",
    "bwd": "backward",
    "clip": "gradient clipping",
    "opt": "optimizer step",
    "zero": "zeroing of gradients",
    "ref": "forward of the reference model",
}


def overhead(job: Job, card: Card) -> tuple[int, int]:
    """Return the memory of context and libraries outside the allocator: at least, at most."""
    from gpuready.catalog import load

    data = load("overheads")
    rows = {row["major"]: row for row in data["overhead"]}
    major = int(card.capability.partition(".")[0])
    row = rows.get(major) or rows[max(rows)]
    low, high = row["generate" if job.task == "generate" else "train"]
    if job.world > 1:
        low, high = low + data["nccl"]["least"], high + data["nccl"]["most"]
    return low * MIB, high * MIB


def notes(job: Job, card: Card) -> list[str]:
    """Return notes on the limits of the numbers."""
    found = []
    if not card.capability.startswith("9."):
        found.append(
            "the context and the libraries were measured on Hopper alone; for this GPU they are a band"
        )
    if job.world > 1:
        found.append(
            "NCCL's own buffers were not measured: they are a band, within which the verdict is undecided"
        )
    if job.optimizer.startswith("paged"):
        found.append(
            "a paged optimizer keeps its state in managed memory, which can move out: it is not counted"
        )
    if job.quant == "int8":
        found.append("how many outliers an 8-bit layer keeps depends on the data; they are estimated")
    return found
