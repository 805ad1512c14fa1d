"""Find the smallest reserve with which a tape does not run out of memory, by replays under a cap."""

from __future__ import annotations

from operator import length_hint

from gpuready.fit.allocator.alloc_conf import NO_LIMIT, AllocatorSettings
from gpuready.fit.allocator.caching_allocator import (
    SMALL_REQUEST_LIMIT,
    CachingAllocator,
    OutOfMemory,
    clone_allocator,
    replay_tape,
)
from gpuready.fit.allocator.memory_blocks import MemoryBlock
from gpuready.fit.search.tape_replay import TapeReplay
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
    # without a memory fraction torch collects no garbage
    survives = SurvivalCheck(large, settings.replace(collect=0.0), low, high, tape.streams)
    for _ in range(MAX_HALVINGS):
        if high - low <= max(peak >> 9, 8 * MIB) or low + small_reserved >= most:
            break
        middle = (low + high) // 2
        low, high = (
            (low, min(middle, survives.survives_from))
            if survives(middle)
            else (max(middle, survives.fails_below), high)
        )
    return min(high + small_reserved, reserved)


class SurvivalCheck:
    """Whether a tape survives under a cap. A replay also decides the caps that would have met the same
    requests.

    While no request falls between the remaining caps, ``least`` to ``most``, their replays are the same: this
    part is played once, and each cap continues from a copy.
    """

    def __init__(
        self, events: list[int], settings: AllocatorSettings, least: int = 0, most: int = NO_LIMIT, streams: int = 1
    ) -> None:
        self._settings = settings
        self.survives_from, self.fails_below = most, least  # it survives from here on; it fails below this
        self._common = SharedCapAllocator(settings, streams=streams)
        self._blocks: list[MemoryBlock | None] = []
        self._rest = events  # still to be replayed

    def __call__(self, cap: int) -> bool:
        if self.fails_below <= cap < self.survives_from:
            self._replay_common_part()
        if cap >= self.survives_from or cap < self.fails_below:
            return cap >= self.survives_from
        allocator, blocks = clone_allocator(self._common, self._blocks, cap)
        try:
            allocator.replay_events(self._rest, blocks)
        except OutOfMemory:
            if self._settings.is_cap_passive:
                self.fails_below = allocator.smallest_failed
            return False
        if self._settings.is_cap_passive:
            self.survives_from = allocator.peak_reserved
        return True

    def _replay_common_part(self) -> None:
        """Replay while all remaining caps behave the same. Garbage collection depends on the cap from the start."""
        if self._settings.collect:
            return
        self._common.cap = self.fails_below
        if self._settings.is_cap_passive:
            self._common.upper_cap = self.survives_from
        coming = iter(self._rest)
        try:
            self._common.replay_events(coming, self._blocks)
        except CapsDiverge:
            self._rest = self._rest[-1 - length_hint(coming) :]  # including the event that it stopped at
        except OutOfMemory:
            self.fails_below = self.survives_from
        else:
            self._rest = []


class CapsDiverge(Exception):
    """A request falls between the caps."""


class SharedCapAllocator(CachingAllocator):
    """An allocator under all caps from ``cap`` to below ``upper_cap`` at once; it stops where they diverge."""

    upper_cap = NO_LIMIT

    def _exceeds_cap(self, need: int) -> bool:
        total = self.reserved + need
        if self.cap < total < self.upper_cap:
            raise CapsDiverge
        return total > self.cap


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
    stays = set(range(first, births)) - {~e for e in events[start:end] if e < 0}
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
