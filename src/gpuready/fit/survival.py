"""Find the smallest reserve with which a tape does not run out of memory, by replays under a cap."""

from __future__ import annotations

from operator import length_hint

from gpuready.fit.allocator import SMALL, Allocator, OutOfMemory, replay, twin
from gpuready.fit.settings import NO_LIMIT, Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.fit.blocks import Block
    from gpuready.fit.prediction import Replay
    from gpuready.fit.tensor import Tape

MIB = 1 << 20
TRIES = 6  # at most so many bisections between allocated and reserved


def smallest(tape: Tape, settings: Settings, free: Replay, most: int = NO_LIMIT) -> int:
    """Return the minimum reserve, to 0.2 % and never too low; above ``most`` less exact.

    Small blocks hardly depend on the cap, so their size in an unlimited replay is added; only the large ones
    are replayed. The last step is played once more than recorded: a tight cap fragments the segments over the
    steps.
    """
    large, small = _sifted(tape)
    peak, reserved, beside = free.peak, free.peak_reserved, free.small
    if beside is None:
        beside = replay(small, Settings(expandable=settings.expandable), streams=tape.streams).peak_reserved
    low, high = max(peak - beside, 0), max(reserved - beside, 0)
    # without a memory fraction torch collects no garbage
    survives = Survival(large, settings.but(collect=0.0), low, high, tape.streams)
    for _ in range(TRIES):
        if high - low <= max(peak >> 9, 8 * MIB) or low + beside >= most:
            break
        middle = (low + high) // 2
        low, high = (
            (low, min(middle, survives.lives)) if survives(middle) else (max(middle, survives.dies), high)
        )
    return min(high + beside, reserved)


class Survival:
    """Whether a tape survives under a cap. A replay also decides the caps that would have met the same
    requests.

    While no request falls between the remaining caps, ``least`` to ``most``, their replays are the same: this
    part is played once, and each cap continues from a copy.
    """

    def __init__(
        self, events: list[int], settings: Settings, least: int = 0, most: int = NO_LIMIT, streams: int = 1
    ) -> None:
        self._settings = settings
        self.lives, self.dies = most, least  # it survives from here on; it fails below this
        self._begun = Common(settings, streams=streams)
        self._blocks: list[Block | None] = []
        self._rest = events  # still to be replayed

    def __call__(self, cap: int) -> bool:
        if self.dies <= cap < self.lives:
            self._begin()
        if cap >= self.lives or cap < self.dies:
            return cap >= self.lives
        allocator, blocks = twin(self._begun, self._blocks, cap)
        try:
            allocator.play(self._rest, blocks)
        except OutOfMemory:
            if self._settings.alike:
                self.dies = allocator.felt
            return False
        if self._settings.alike:
            self.lives = allocator.peak_reserved
        return True

    def _begin(self) -> None:
        """Replay while all remaining caps behave the same. Garbage collection depends on the cap from the start."""
        if self._settings.collect:
            return
        self._begun.cap = self.dies
        if self._settings.alike:
            self._begun.most = self.lives
        coming = iter(self._rest)
        try:
            self._begun.play(coming, self._blocks)
        except Parted:
            self._rest = self._rest[-1 - length_hint(coming) :]  # including the event that it stopped at
        except OutOfMemory:
            self.dies = self.lives
        else:
            self._rest = []


class Parted(Exception):
    """A request falls between the caps."""


class Common(Allocator):
    """An allocator under all caps from ``cap`` to below ``upper_cap`` at once; it stops where they diverge."""

    most = NO_LIMIT

    def _lacks(self, need: int) -> bool:
        whole = self.reserved + need
        if self.cap < whole < self.most:
            raise Parted
        return whole > self.cap


def _sifted(tape: Tape) -> tuple[list[int], list[int]]:
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
        elif event > SMALL:  # type: ignore[operator]
            names.append(births)
            births += 1
            large.append(event)  # type: ignore[arg-type]
        else:
            few += 1
            names.append(-few)  # ~(few - 1)
            small.append(event)  # type: ignore[arg-type]
    if len(starts) > 3:
        large += _again(large, *starts[-2], starts[-1][0], births)
    return large, small


def _again(events: list[int], start: int, first: int, end: int, births: int) -> list[int]:
    """Repeat a step under new allocation numbers.

    An older allocation freed in it is gone; if the step left one of the same size live, that one is freed
    instead.
    """
    more, sizes = births - first, [e for e in events if e >= 0]
    stays = set(range(first, births)) - {~e for e in events[start:end] if e < 0}
    heirs: dict[int, list[int]] = {}
    for number in sorted(stays, reverse=True):
        heirs.setdefault(sizes[number], []).append(number)
    again: list[int] = []
    for event in events[start:end]:
        if event >= 0 or ~event >= first:
            again.append(event if event >= 0 else ~(~event + more))
        elif heirs.get(sizes[~event]):
            again.append(~heirs[sizes[~event]].pop())
    return again
