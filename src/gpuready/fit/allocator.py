"""PyTorch's caching allocator for one device: what it reserves for a tape of allocations and frees."""

from __future__ import annotations

from bisect import bisect_left, insort

from gpuready.fit.blocks import Block, copies
from gpuready.fit.expandable import Segment
from gpuready.fit.settings import NO_LIMIT, Settings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuready.fit.blocks import Pool

MIB = 1 << 20
SMALLEST = 512  # block sizes are multiples of this
SMALL = MIB  # requests up to here come from the small pool
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB  # for requests from 1 to 10 MiB
DIRECT = 10 * MIB  # from here on a segment has the size of the request
ROUND = 2 * MIB
# Among blocks of one size torch takes the lowest address; the driver hands addresses out downwards (seen in
# recordings of real allocators; with upward addresses the reserve of 2 tapes out of 11 is wrong).
APART = 1 << 40


class OutOfMemory(Exception):
    """The allocator would raise out of memory."""


class Allocator:
    """Best fit over cached blocks, split and merged as torch does; ``cap`` limits what it may reserve."""

    def __init__(self, settings: Settings | None = None, cap: int = NO_LIMIT, streams: int = 1) -> None:
        settings = settings or Settings()
        self.settings, self.streams = settings, streams
        self._plain = settings == Settings()
        self.cap = cap
        self.allocated = self.peak = self.reserved = self.peak_reserved = 0
        self.retries = self.at = 0
        self.small = 0  # bytes of the reserve that belong to the small pool
        self.felt = (
            NO_LIMIT  # the smallest reserve that was refused: any cap below it ends the same way
        )
        # blocks freed on a stream are not reused on another; per stream: the large pool, then the small one
        self._free: tuple[Pool, ...] = tuple([] for _ in range(2 * streams))
        self._address = 0
        self._asked = 0  # number of requests for large blocks
        self._spaces: tuple[Segment, ...] = ()
        if settings.expandable:
            self._spaces = tuple(Segment(number, pool) for number, pool in enumerate(self._free))

    def rounded(self, size: int) -> int:
        """Return the block size for a request."""
        if size < SMALLEST:
            return SMALLEST
        divisions = self._divided(size)
        if divisions > 1 and size > SMALLEST * divisions:
            power = 1 << (size.bit_length() - 1)
            if power == size:
                return size
            step = power // divisions
            return -(-size // step) * step if step else power * 2
        return -(-size // SMALLEST) * SMALLEST

    def _divided(self, size: int) -> int:
        table = self.settings.divisions
        return table[min(max(size.bit_length() - MIB.bit_length(), 0), len(table) - 1)] if table else 0

    def malloc(self, size: int, stream: int = 0) -> Block:
        size = -(-size // SMALLEST) * SMALLEST or SMALLEST if self._plain else self.rounded(size)
        small = size <= SMALL
        number = 2 * stream + small
        pool = self._free[number]
        if self._plain:
            at = bisect_left(pool, (size,))
            block = pool.pop(at)[2] if at < len(pool) else self._segment(size, number)
            splits = block.size - size >= (SMALLEST if small else SMALL + 1)
        else:
            block, splits = self._fitted(pool, size, number)
        if splits:
            self._split(block, size, pool)
        block.free = False
        self.allocated += block.size
        if self.allocated > self.peak:
            self.peak = self.allocated
        return block

    def _fitted(self, pool: Pool, size: int, number: int) -> tuple[Block, bool]:
        """Return a block under non-default settings, and whether its rest is split off."""
        small = number & 1
        self._asked += not small
        block = self._cached(pool, size, number)
        if block is None:
            block = self._expand(size, number) if self._spaces else self._segment(size, number)
        rest = block.size - size
        if small or self._spaces:
            return block, rest >= SMALLEST
        return block, rest > SMALL and size < self.settings.max_split

    def _cached(self, pool: Pool, size: int, number: int) -> Block | None:
        at = bisect_left(pool, (size,))
        if at == len(pool):
            return None
        if self._spaces:
            at = self._spaces[number].fitting(at)
        limit = self.settings.max_split
        found = pool[at][0]
        if size < limit <= found or (size >= limit and found >= size + self.settings.rounding):
            return None
        return pool.pop(at)[2]

    def _split(self, block: Block, size: int, pool: Pool) -> None:
        rest = Block(block.address + size, block.size - size, block.pool)
        rest.before, rest.after, block.after = block, block.after, rest
        if rest.after is not None:
            rest.after.before = rest
        rest.free = True
        block.size = size
        insort(pool, (rest.size, rest.address, rest))

    def _segment(self, size: int, number: int) -> Block:
        """Reserve a new segment from the device."""
        if number & 1:
            need = SMALL_SEGMENT
        elif size < DIRECT:
            need = LARGE_SEGMENT
        else:
            need = -(-size // ROUND) * ROUND
        if self.settings.collect and self.cap < NO_LIMIT:
            self._collect()
        if self._lacks(need):
            self._release(size)
            if self._lacks(need):
                raise OutOfMemory
        self._address -= need + APART
        block = Block(self._address, need, number)
        self._reserve(need, number)
        return block

    def _lacks(self, need: int) -> bool:
        """Whether reserving ``need`` more bytes exceeds the cap."""
        whole = self.reserved + need
        if whole <= self.cap:
            return False
        if whole < self.felt:
            self.felt = whole
        return True

    def _reserve(self, size: int, number: int) -> None:
        self.reserved += size
        if number & 1:
            self.small += size
        if self.reserved > self.peak_reserved:
            self.peak_reserved = self.reserved

    def free(self, block: Block) -> None:
        self.allocated -= block.size
        pool = self._free[block.pool]
        block.free, block.age = True, self._asked
        for other in (block.before, block.after):
            if other is not None and other.free:
                pool.pop(bisect_left(pool, (other.size, other.address)))
                block.take(other)
        insort(pool, (block.size, block.address, block))

    def play(self, events: Iterable[int], blocks: list[Block | None]) -> None:
        """Replay events; ``blocks`` are the blocks allocated so far, in order."""
        if self._plain:
            self._play(events, blocks)
            return
        for event in events:
            if event >= 0:
                before = self.peak
                blocks.append(self.malloc(event, getattr(event, "stream", 0)))
                if self.peak > before:
                    self.at = len(blocks)
            else:
                block, blocks[~event] = blocks[~event], None
                self.free(block)  # type: ignore[arg-type]

    def _play(self, events: Iterable[int], blocks: list[Block | None]) -> None:
        """The same with default settings, ``malloc_block`` and ``free_block`` inlined: most of a prediction's
        time is spent here.
        """
        pools = self._free
        allocated, peak, born = self.allocated, self.peak, blocks.append
        try:
            for event in events:
                if event >= 0:
                    size = -(-event // SMALLEST) * SMALLEST or SMALLEST
                    number, keeps = (0, SMALL) if size > SMALL else (1, SMALLEST - 1)
                    if event.__class__ is not int:
                        number += 2 * event.stream  # type: ignore[attr-defined]
                    pool = pools[number]
                    at = bisect_left(pool, (size,))
                    block = pool.pop(at)[2] if at < len(pool) else self._segment(size, number)
                    rest = block.size - size
                    if rest > keeps:
                        other = Block(block.address + size, rest, block.pool)
                        other.before, other.after, other.free = block, block.after, True
                        if block.after is not None:
                            block.after.before = other
                        block.after, block.size = other, size
                        insort(pool, (rest, other.address, other))
                    block.free = False
                    born(block)
                    allocated += block.size
                    if allocated > peak:
                        peak, self.at = allocated, len(blocks)
                else:
                    block, blocks[~event] = blocks[~event], None  # type: ignore[assignment]
                    size = block.size
                    allocated -= size
                    pool = pools[block.pool]
                    near = block.before
                    if near is not None and near.free:
                        del pool[bisect_left(pool, (near.size, near.address))]
                        size += near.size
                        block.address, block.before = near.address, near.before
                        if near.before is not None:
                            near.before.after = block
                    near = block.after
                    if near is not None and near.free:
                        del pool[bisect_left(pool, (near.size, near.address))]
                        size += near.size
                        block.after = near.after
                        if near.after is not None:
                            near.after.before = block
                    block.size, block.free = size, True
                    insort(pool, (size, block.address, block))
        finally:
            self.allocated, self.peak = allocated, peak

    def empty(self) -> None:
        """torch.cuda.empty_cache: release whole cached segments and reset the peaks."""
        self._unmap() if self._spaces else self._release(0)
        self.retries = 0
        self.peak, self.peak_reserved = self.allocated, self.reserved

    # ------------------------------------------------------------------------------ when memory is scarce
    def _release(self, size: int) -> None:
        """Release whole cached segments: first as many oversized ones as needed, then all."""
        self.retries += 1
        if self.settings.max_split < NO_LIMIT and self._release_large(size):
            return
        for number, pool in enumerate(self._free):
            kept = [entry for entry in pool if entry[2].before is not None or entry[2].after is not None]
            given = sum(e[0] for e in pool) - sum(e[0] for e in kept)
            self.reserved, self.small = self.reserved - given, self.small - given * (number & 1)
            pool[:] = kept

    def _release_large(self, size: int) -> bool:
        """Release the smallest oversized segment that is enough; else the largest ones, one after the other."""
        pool, wanted = self._free[0], max(size, self.settings.max_split)
        freed, at = 0, bisect_left(pool, (wanted,))
        if at < len(pool):
            freed = pool.pop(at)[0]
        while freed < wanted and pool and pool[-1][0] >= self.settings.max_split:
            freed += pool.pop()[0]
        self.reserved -= freed
        return freed >= wanted and self.reserved + size <= self.cap

    def _collect(self) -> None:
        """Above the threshold, release cached segments that were unused for longer than the mean."""
        pool, over = self._free[0], self.reserved - int(self.settings.collect * self.cap)
        while over > 0:
            whole = [e for e in pool if e[2].before is None and e[2].after is None]
            mean = sum(self._asked - e[2].age for e in whole) / len(whole) if whole else 0.0
            old = [e for e in whole if self._asked - e[2].age >= mean]
            if not old:
                return
            freed = sum(e[0] for e in old)
            self.reserved, over = self.reserved - freed, over - freed
            gone = {id(e[2]) for e in old}
            pool[:] = [e for e in pool if id(e[2]) not in gone]

    # -------------------------------------------------------------------------------- expandable segments
    def _expand(self, size: int, number: int) -> Block:
        """Map the missing pages where the pool's segment has room; a free block before them grows."""
        space = self._spaces[number]
        place, need = space.place(size)
        if self._lacks(need):
            self._unmap()
            place, need = space.place(size)
            if self._lacks(need):
                raise OutOfMemory
        self._reserve(need, number)
        return space.mapped(place, size)

    def _unmap(self) -> None:
        """Unmap all pages that are entirely free; their addresses can be mapped again."""
        self.retries += 1
        given = [space.give_back() for space in self._spaces]
        self.reserved, self.small = self.reserved - sum(given), self.small - sum(given[1::2])


def replay(
    events: Iterable[int | str], settings: Settings | None = None, cap: int = NO_LIMIT, streams: int = 1
) -> Allocator:
    """Replay a tape through a new allocator; OutOfMemory if the cap is too low."""
    allocator = Allocator(settings, cap, streams)
    allocator.play((event for event in events if event.__class__ is not str), [])  # type: ignore[misc]
    return allocator


def twin(allocator: Allocator, blocks: list[Block | None], cap: int) -> tuple[Allocator, list[Block | None]]:
    """Return a copy of an allocator under another cap, and the copied blocks of a tape."""
    made = Allocator(allocator.settings, cap, allocator.streams)
    for name in ("allocated", "peak", "reserved", "peak_reserved", "small", "retries", "_address", "_asked"):
        setattr(made, name, getattr(allocator, name))
    every = [block for block in blocks if block is not None]
    every += [block for pool in allocator._free for _, _, block in pool]
    every += [block for space in allocator._spaces for _, block in space.unmapped]
    twins: dict[Block | None, Block | None] = {None: None}
    twins.update(zip(every, copies(every), strict=True))
    for mine, theirs in zip(made._free, allocator._free, strict=True):
        mine += [(size, address, twins[block]) for size, address, block in theirs]  # type: ignore[misc]
    for my, their in zip(made._spaces, allocator._spaces, strict=True):
        my.unmapped[:] = [(address, twins[block]) for address, block in their.unmapped]  # type: ignore[misc]
    return made, [twins[block] for block in blocks]
