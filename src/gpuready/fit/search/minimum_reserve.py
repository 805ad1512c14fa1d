"""Find the smallest reserve with which a tape does not run out of memory, by replays under a cap."""

from __future__ import annotations

from itertools import islice

from gpuready.fit.allocator.alloc_conf import NO_LIMIT, AllocatorSettings
from gpuready.fit.allocator.caching_allocator import SMALL_REQUEST_LIMIT, CachingAllocator, OutOfMemory, replay_tape
from gpuready.fit.allocator.expandable_segments import MemoryBlock
from gpuready.fit.tape.autograd import Tape

MIB = 1 << 20
MAX_HALVINGS = 6  # at most so many bisections between allocated and reserved


def find_minimum_reserve(tape: Tape, settings: AllocatorSettings, free_replay: TapeReplay, most: int = NO_LIMIT) -> int:
    """Return the minimum reserve, to 0.2 % and never too low; above ``most`` less exact.

    Small blocks hardly depend on the cap, so their size in an unlimited replay is added; only the large ones
    are replayed. The last step is played once more than recorded: a tight cap fragments the segments over the
    steps.
    """
    large, small = _split_by_pool(tape)
    peak, reserved, small_reserved = free_replay.peak, free_replay.peak_reserved, free_replay.small_reserved
    if small_reserved is None:
        small_reserved = replay_tape(
            small, AllocatorSettings(expandable=settings.expandable), streams=tape.streams
        ).peak_reserved
    low, high = max(peak - small_reserved, 0), max(reserved - small_reserved, 0)
    for _ in range(MAX_HALVINGS):
        if high - low <= max(peak >> 9, 8 * MIB) or low + small_reserved >= most:
            break
        middle = (low + high) // 2
        allocator = CachingAllocator(settings, middle, tape.streams)
        try:
            allocator.replay_events(large, [])
        except OutOfMemory:
            low = max(middle, allocator.smallest_failed) if settings.is_cap_passive else middle
        else:
            high = min(middle, allocator.peak_reserved) if settings.is_cap_passive else middle
    return min(high + small_reserved, reserved)


def _split_by_pool(tape: Tape) -> tuple[list[int], list[int]]:
    """Return the events of the large pool, its last step repeated, and those of the small pool, renumbered."""
    large: list[int] = []
    small: list[int] = []
    names: list[int] = []  # per allocation: its number, negative in the small pool
    births = few = 0
    starts = [(0, 0)]
    for event in tape.events:
        if event.__class__ is str:
            if event == "build" or event.startswith("zero"):
                starts.append((len(large), births))
        elif event < 0:  # type: ignore[operator]
            name = names[~event]  # type: ignore[operator]
            (large if name >= 0 else small).append(~name if name >= 0 else name)
        elif event > SMALL_REQUEST_LIMIT:  # type: ignore[operator]
            names.append(births)
            births += 1
            large.append(event)  # type: ignore[arg-type]
        else:
            few += 1
            names.append(-few)  # ~(few - 1)
            small.append(event)  # type: ignore[arg-type]
    if len(starts) > 3:
        large += _repeat_last_step(large, *starts[-2], starts[-1][0], births)
    return large, small


def _repeat_last_step(events: list[int], start: int, first: int, end: int, births: int) -> list[int]:
    """Repeat a step under new allocation numbers.

    An older allocation freed in it is gone; if the step left one of the same size live, that one is freed
    instead.
    """
    offset, sizes = births - first, [e for e in events if e >= 0]
    stays = set(range(first, births)) - {~e for e in events[start:] if e < 0}
    heirs: dict[int, list[int]] = {}
    for number in sorted(stays, reverse=True):
        heirs.setdefault(sizes[number], []).append(number)
    again: list[int] = []
    for event in events[start:end]:
        if event >= 0 or ~event >= first:
            again.append(event if event >= 0 else ~(~event + offset))
        elif heirs.get(sizes[~event]):
            again.append(~heirs[sizes[~event]].pop())
    return again


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
            if event == "empty":  # the script empties the cache itself
                allocator.empty_cache()
            elif begun:
                self.phases[str(event)] = max(before, allocator.peak)
            else:
                loaded = allocator.small_reserved
                allocator.empty_cache()
                allocator.reset_peaks()
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
