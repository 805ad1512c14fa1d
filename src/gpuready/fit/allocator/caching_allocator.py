"""PyTorch's caching allocator for one device: what it reserves for a tape of allocations and frees."""

from bisect import bisect_left, insort
from collections.abc import Iterable

from gpuready.fit.allocator.alloc_conf import NO_LIMIT, AllocatorSettings
from gpuready.fit.allocator.expandable_segments import ExpandableSegment, FreePool, MemoryBlock

MIB = 1 << 20
MIN_BLOCK_SIZE = 512  # block sizes are multiples of this
SMALL_REQUEST_LIMIT = MIB  # requests up to here come from the small pool
SMALL_SEGMENT_SIZE = 2 * MIB
LARGE_SEGMENT_SIZE = 20 * MIB  # for requests from 1 to 10 MiB
MIN_DIRECT_SIZE = 10 * MIB  # from here on a segment has the size of the request
DIRECT_ROUNDING = 2 * MIB
UNSPLIT_REST = 20 * MIB  # from here on the rest of a block that is not split is too large
# Among blocks of one size torch takes the lowest address; the driver hands addresses out downwards (seen in
# recordings of real allocators; with upward addresses the reserve of 2 tapes out of 11 is wrong).
SEGMENT_GAP = 1 << 40


class OutOfMemory(Exception):
    """The allocator would raise out of memory."""


class CachingAllocator:
    """Best fit over cached blocks, split and merged as torch does; ``cap`` limits what it may reserve."""

    def __init__(self, settings: AllocatorSettings | None = None, cap: int = NO_LIMIT, streams: int = 1) -> None:
        settings = settings or AllocatorSettings()
        self.settings, self.streams = settings, streams
        self.cap = cap
        self.allocated = self.peak = self.reserved = self.peak_reserved = 0
        self.retries = self.births_at_peak = 0
        self.small_reserved = 0  # bytes of the reserve that belong to the small pool
        self.smallest_failed = NO_LIMIT  # the smallest reserve that was refused: any cap below it ends the same way
        # blocks freed on a stream are not reused on another; per stream: the large pool, then the small one
        self._free_pools: tuple[FreePool, ...] = tuple([] for _ in range(2 * streams))
        self._address = 0
        self._expandable_segments: tuple[ExpandableSegment, ...] = ()
        if settings.expandable:
            self._expandable_segments = tuple(
                ExpandableSegment(number, pool) for number, pool in enumerate(self._free_pools)
            )

    def round_size(self, size: int) -> int:
        """Return the block size for a request."""
        if size < MIN_BLOCK_SIZE:
            return MIN_BLOCK_SIZE
        divisions = self.settings.divisions
        if divisions > 1 and size > MIN_BLOCK_SIZE * divisions:
            power = 1 << (size.bit_length() - 1)
            if power == size:
                return size
            step = power // divisions
            return -(-size // step) * step if step else power * 2
        return -(-size // MIN_BLOCK_SIZE) * MIN_BLOCK_SIZE

    def malloc_block(self, size: int, stream: int = 0) -> MemoryBlock:
        size = self.round_size(size)
        small = size <= SMALL_REQUEST_LIMIT
        number = 2 * stream + small
        pool = self._free_pools[number]
        block = self._find_cached_block(pool, size, number)
        if block is None:
            block = self._map_expandable(size, number) if self._expandable_segments else self._new_segment(size, number)
        rest = block.size - size
        if small or self._expandable_segments:
            splits = rest >= MIN_BLOCK_SIZE
        else:
            splits = rest > SMALL_REQUEST_LIMIT and size < self.settings.max_split
        if splits:
            self._split_block(block, size, pool)
        block.free = False
        self.allocated += block.size
        if self.allocated > self.peak:
            self.peak = self.allocated
        return block

    def _find_cached_block(self, pool: FreePool, size: int, number: int) -> MemoryBlock | None:
        at = bisect_left(pool, (size,))
        if at == len(pool):
            return None
        if self._expandable_segments:
            at = self._expandable_segments[number].choose_free_block(at)
        limit = self.settings.max_split
        block_size = pool[at][0]
        if size < limit <= block_size or (size >= limit and block_size >= size + UNSPLIT_REST):
            return None
        return pool.pop(at)[2]

    def _split_block(self, block: MemoryBlock, size: int, pool: FreePool) -> None:
        rest = MemoryBlock(block.address + size, block.size - size, block.pool)
        rest.before, rest.after, block.after = block, block.after, rest
        if rest.after is not None:
            rest.after.before = rest
        rest.free = True
        block.size = size
        insort(pool, (rest.size, rest.address, rest))

    def _new_segment(self, size: int, number: int) -> MemoryBlock:
        """Reserve a new segment from the device."""
        if number & 1:
            need = SMALL_SEGMENT_SIZE
        elif size < MIN_DIRECT_SIZE:
            need = LARGE_SEGMENT_SIZE
        else:
            need = -(-size // DIRECT_ROUNDING) * DIRECT_ROUNDING
        if self._exceeds_cap(need):
            self._release_cached(size)
            if self._exceeds_cap(need):
                raise OutOfMemory
        self._address -= need + SEGMENT_GAP
        block = MemoryBlock(self._address, need, number)
        self._count_reserved(need, number)
        return block

    def _exceeds_cap(self, need: int) -> bool:
        """Whether reserving ``need`` more bytes exceeds the cap."""
        total = self.reserved + need
        if total <= self.cap:
            return False
        if total < self.smallest_failed:
            self.smallest_failed = total
        return True

    def _count_reserved(self, size: int, number: int) -> None:
        self.reserved += size
        if number & 1:
            self.small_reserved += size
        if self.reserved > self.peak_reserved:
            self.peak_reserved = self.reserved

    def free_block(self, block: MemoryBlock) -> None:
        self.allocated -= block.size
        pool = self._free_pools[block.pool]
        block.free = True
        for other in (block.before, block.after):
            if other is not None and other.free:
                pool.pop(bisect_left(pool, (other.size, other.address)))
                block.absorb_neighbour(other)
        insort(pool, (block.size, block.address, block))

    def replay_events(self, events: Iterable[int], blocks: list[MemoryBlock | None]) -> None:
        """Replay events; ``blocks`` are the blocks allocated so far, in order."""
        for event in events:
            if event >= 0:
                before = self.peak
                blocks.append(self.malloc_block(event, getattr(event, "stream", 0)))
                if self.peak > before:
                    self.births_at_peak = len(blocks)
            else:
                block, blocks[~event] = blocks[~event], None
                self.free_block(block)  # type: ignore[arg-type]

    def empty_cache(self) -> None:
        """torch.cuda.empty_cache: release whole cached segments. What was reserved before was reserved all the same."""
        self._unmap_free_pages() if self._expandable_segments else self._release_cached(0)
        self.retries = 0

    def reset_peaks(self) -> None:
        self.peak, self.peak_reserved = self.allocated, self.reserved

    # ------------------------------------------------------------------------------ when memory is scarce
    def _release_cached(self, size: int) -> None:
        """Release whole cached segments: first as many oversized ones as needed, then all."""
        self.retries += 1
        if self.settings.max_split < NO_LIMIT and self._release_oversized(size):
            return
        for number, pool in enumerate(self._free_pools):
            kept = [entry for entry in pool if entry[2].before is not None or entry[2].after is not None]
            released = sum(e[0] for e in pool) - sum(e[0] for e in kept)
            self.reserved = self.reserved - released
            self.small_reserved = self.small_reserved - released * (number & 1)
            pool[:] = kept

    def _release_oversized(self, size: int) -> bool:
        """Release the smallest oversized segment that is enough; else the largest ones, one after the other."""
        pool, wanted = self._free_pools[0], max(size, self.settings.max_split)
        freed, at = 0, bisect_left(pool, (wanted,))
        if at < len(pool):
            freed = pool.pop(at)[0]
        while freed < wanted and pool and pool[-1][0] >= self.settings.max_split:
            freed += pool.pop()[0]
        self.reserved -= freed
        return freed >= wanted and self.reserved + size <= self.cap

    # -------------------------------------------------------------------------------- expandable segments
    def _map_expandable(self, size: int, number: int) -> MemoryBlock:
        """Map the missing pages where the pool's segment has room; a free block before them grows."""
        space = self._expandable_segments[number]
        place, need = space.find_space(size)
        if self._exceeds_cap(need):
            self._unmap_free_pages()
            place, need = space.find_space(size)
            if self._exceeds_cap(need):
                raise OutOfMemory
        self._count_reserved(need, number)
        return space.map_block(place, size)

    def _unmap_free_pages(self) -> None:
        """Unmap all pages that are entirely free; their addresses can be mapped again."""
        self.retries += 1
        released = [space.release_free_pages() for space in self._expandable_segments]
        self.reserved, self.small_reserved = (self.reserved - sum(released), self.small_reserved - sum(released[1::2]))


def replay_tape(
    events: Iterable[int | str], settings: AllocatorSettings | None = None, cap: int = NO_LIMIT, streams: int = 1
) -> CachingAllocator:
    """Replay a tape through a new allocator; OutOfMemory if the cap is too low."""
    allocator = CachingAllocator(settings, cap, streams)
    allocator.replay_events((event for event in events if event.__class__ is not str), [])  # type: ignore[misc]
    return allocator
