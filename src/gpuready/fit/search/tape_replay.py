"""Replay a tape without a cap: the peak of every phase, and where the highest is."""

from __future__ import annotations

from itertools import islice

from gpuready.fit.allocator.alloc_conf import AllocatorSettings
from gpuready.fit.allocator.caching_allocator import CachingAllocator
from gpuready.fit.allocator.memory_blocks import MemoryBlock
from gpuready.fit.tape.autograd import Tape

PHASE_TITLES = {
    "build": "setting up",
    "fwd": "forward",
    "bwd": "backward",
    "clip": "gradient clipping",
    "opt": "optimizer step",
    "zero": "zeroing of gradients",
    "ref": "forward of the reference model",
    "score": "scoring",
}


class TapeReplay:
    """A replay without a cap: the peak of every phase, and where the highest is.

    Memory cached while loading the weights is released, as the loaders do; what DeepSpeed frees later, during
    its setup, stays cached.
    """

    def __init__(self, tape: Tape, settings: AllocatorSettings) -> None:
        allocator = CachingAllocator(settings, streams=tape.streams)
        self.phases: dict[str, int] = {}
        self.peak = births = start = 0
        blocks: list[MemoryBlock | None] = []
        begun = emptied = False
        marks = [(at, event) for at, event in enumerate(tape.events) if event.__class__ is str]
        for end, event in (*marks, (len(tape.events), "")):
            before, allocator.peak = allocator.allocated, 0
            allocator.replay_events(tape.events[start:end], blocks)  # type: ignore[arg-type]
            start = end + 1
            if allocator.peak > self.peak:
                self.peak, births = allocator.peak, allocator.births_at_peak
            if begun:
                self.phases[str(event)] = max(before, allocator.peak)
            else:
                loaded = allocator.small_reserved
                allocator.empty_cache()
                begun, self.peak = True, 0
                emptied = allocator.small_reserved != loaded
        self.phases.pop("", None)  # events after the last mark
        self.peak_event = _birth_position(tape, births)
        self.peak_reserved = allocator.peak_reserved
        # without an emptied cache, a separate replay of the small pool gives the same size
        self.small_reserved = (
            None if emptied or settings.replace(expandable=False) != AllocatorSettings() else allocator.small_reserved
        )

    def locate_peak(self, tape: Tape) -> tuple[str, str]:
        """Return phase and operation of the peak."""
        births = sum(1 for e in tape.events[: self.peak_event + 1] if e.__class__ is not str and e >= 0)  # type: ignore[misc, operator]
        phase = next((e for e in tape.events[self.peak_event :] if e.__class__ is str), "")
        return PHASE_TITLES.get(str(phase).rstrip("0123456789."), str(phase)), tape.ops[births - 1] if births else ""


def _birth_position(tape: Tape, number: int) -> int:
    """Return the position on the tape of the n-th allocation."""
    at = (at for at, event in enumerate(tape.events) if event.__class__ is not str and event >= 0)  # type: ignore[operator]
    return next(islice(at, number - 1, None), 0) if number else 0
