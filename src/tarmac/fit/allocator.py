"""PyTorch's caching allocator for one device and one stream: what it reserves for a tape of births and deaths."""

from __future__ import annotations

from bisect import bisect_left, insort

from tarmac.noun import Noun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

MIB = 1 << 20
SMALLEST = 512  # every block is a multiple of this
SMALL = MIB  # requests up to here come from the small pool
SMALL_SEGMENT = 2 * MIB
LARGE_SEGMENT = 20 * MIB  # for requests from 1 to 10 MiB
DIRECT = 10 * MIB  # from here on a segment is made to measure
ROUND = 2 * MIB
NO_LIMIT = 1 << 62
# Among blocks of one size torch takes the one at the lowest address; the driver hands addresses out downwards (seen in
# the records of real allocators: upwards, the reserve of two tapes of eleven comes out wrong).
APART = 1 << 40


class OutOfMemory(Exception):
    """The allocator would give up."""


class Settings(Noun):
    """What PYTORCH_CUDA_ALLOC_CONF can say."""

    expandable: bool = False
    max_split: int = NO_LIMIT
    divisions: tuple[tuple[int, int], ...] = ()  # (from this many MiB, divisions of a power of two)
    collect: float = 0.0

    @classmethod
    def parse(cls, text: str) -> Settings:
        """Read the variable; ValueError says which part has no meaning."""
        found: dict[str, object] = {}
        for part in _parts(text):
            key, colon, value = part.partition(":")
            key, value = key.strip(), value.strip()
            if not colon:
                raise ValueError(f"the allocator setting {part!r} has no value: write it as name:value")
            try:
                if key == "expandable_segments":
                    found["expandable"] = _truth(value)
                elif key == "max_split_size_mb":
                    found["max_split"] = int(value) * MIB
                elif key == "garbage_collection_threshold":
                    found["collect"] = float(value)
                elif key.startswith("roundup_power2_divisions"):
                    found["divisions"] = _divisions(value)
            except ValueError:
                raise ValueError(f"the allocator setting {key} cannot be {value!r}") from None
        return cls(**found)  # type: ignore[arg-type]


def _truth(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError(value)
    return value.lower() == "true"


def _parts(text: str) -> list[str]:
    """Split at the commas outside of brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter == "[") - (letter == "]")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return [p.strip() for p in parts if p.strip()]


def _divisions(value: str) -> tuple[tuple[int, int], ...]:
    if not value.startswith("["):
        return ((0, int(value)),)
    pairs = (p.split(":") for p in value.strip("[]").split(","))
    return tuple((1 << 40 if k.strip() == ">" else int(k), int(v)) for k, v in pairs)


class Block:
    """A stretch of a segment, used or free; its neighbours share the segment."""

    __slots__ = ("address", "after", "before", "free", "mapped", "size", "small")

    def __init__(self, address: int, size: int, small: bool) -> None:
        self.address = address
        self.size = size
        self.small = small
        self.before: Block | None = None
        self.after: Block | None = None
        self.free = False
        self.mapped = True


class Allocator:
    """Best fit over cached blocks, split and merged as torch does it; ``cap`` is all that it may reserve."""

    def __init__(self, settings: Settings | None = None, cap: int = NO_LIMIT) -> None:
        settings = settings or Settings()
        self.settings = settings
        self._plain = settings == Settings()
        self.cap = cap
        self.allocated = self.peak = self.reserved = self.peak_reserved = 0
        self.retries = 0
        self._free: tuple[list[tuple[int, int, Block]], list[tuple[int, int, Block]]] = ([], [])
        self._address = 0
        self._tails: list[Block | None] = [None, None]  # the last block of each expandable segment
        self._reach = [0, 0]  # where each of them ends

    def rounded(self, size: int) -> int:
        """The size of the block that a request gets."""
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
        found = 0
        for start, divisions in self.settings.divisions:
            if size >= start * MIB or not found:
                found = divisions
        return found

    def malloc(self, size: int) -> Block:
        size = -(-size // SMALLEST) * SMALLEST or SMALLEST if self._plain else self.rounded(size)
        small = size <= SMALL
        pool = self._free[small]
        if self._plain:
            at = bisect_left(pool, (size,))
            block = pool.pop(at)[2] if at < len(pool) else self._segment(size, small)
            splits = block.size - size >= (SMALLEST if small else SMALL + 1)
        else:
            block, splits = self._fitted(pool, size, small)
        if splits:
            self._split(block, size, pool)
        block.free = False
        self.allocated += block.size
        if self.allocated > self.peak:
            self.peak = self.allocated
        return block

    def _fitted(self, pool: list[tuple[int, int, Block]], size: int, small: bool) -> tuple[Block, bool]:
        """A block under settings of one's own, and whether its rest is split off."""
        block = self._cached(pool, size)
        if block is None:
            block = self._expand(size, small) if self.settings.expandable else self._segment(size, small)
        rest = block.size - size
        if small or self.settings.expandable:
            return block, rest >= SMALLEST
        return block, rest > SMALL and size < self.settings.max_split

    def _cached(self, pool: list[tuple[int, int, Block]], size: int) -> Block | None:
        at = bisect_left(pool, (size,))
        if at == len(pool):
            return None
        limit = self.settings.max_split
        found = pool[at][0]
        if size < limit <= found or (size >= limit and found >= size + LARGE_SEGMENT):
            return None
        return pool.pop(at)[2]

    def _split(self, block: Block, size: int, pool: list[tuple[int, int, Block]]) -> None:
        rest = Block(block.address + size, block.size - size, block.small)
        rest.before, rest.after, block.after = block, block.after, rest
        if rest.after is not None:
            rest.after.before = rest
        elif self._tails[block.small] is block:
            self._tails[block.small] = rest
        rest.free = True
        block.size = size
        insort(pool, (rest.size, rest.address, rest))

    def _segment(self, size: int, small: bool) -> Block:
        """A new segment from the device."""
        if small:
            need = SMALL_SEGMENT
        elif size < DIRECT:
            need = LARGE_SEGMENT
        else:
            need = -(-size // ROUND) * ROUND
        if self.settings.collect:
            self._collect(need)
        if self.reserved + need > self.cap:
            self._release(size)
        if self.reserved + need > self.cap:
            raise OutOfMemory
        self._address -= need + APART
        block = Block(self._address, need, small)
        self._reserve(need)
        return block

    def _reserve(self, size: int) -> None:
        self.reserved += size
        if self.reserved > self.peak_reserved:
            self.peak_reserved = self.reserved

    def free(self, block: Block) -> None:
        self.allocated -= block.size
        pool = self._free[block.small]
        block.free = True
        for other in (block.before, block.after):
            if other is not None and other.free:
                pool.pop(bisect_left(pool, (other.size, other.address)))
                self._merge(block, other)
        insort(pool, (block.size, block.address, block))

    def _merge(self, block: Block, other: Block) -> None:
        if other is block.before:
            block.address = other.address
            block.before = other.before
            if block.before is not None:
                block.before.after = block
        else:
            block.after = other.after
            if block.after is not None:
                block.after.before = block
        if self._tails[block.small] is other:
            self._tails[block.small] = block
        block.size += other.size

    def empty(self) -> None:
        """torch.cuda.empty_cache: whole cached segments go back, and the peaks start anew."""
        if self.settings.expandable:
            self._unmap()
        else:
            self._release(0)
        self.retries = 0
        self.peak, self.peak_reserved = self.allocated, self.reserved

    # ------------------------------------------------------------------------------ when memory is scarce
    def _release(self, size: int) -> None:
        """Give whole cached segments back: first what is needed of the oversized ones, then everything."""
        self.retries += 1
        if self.settings.max_split < NO_LIMIT and self._release_large(size):
            return
        for pool in self._free:
            kept = [entry for entry in pool if entry[2].before is not None or entry[2].after is not None]
            self.reserved -= sum(e[0] for e in pool) - sum(e[0] for e in kept)
            pool[:] = kept

    def _release_large(self, size: int) -> bool:
        """Oversized segments that are wholly free, the largest first, until enough has gone back."""
        pool, wanted = self._free[False], max(size, self.settings.max_split)
        freed = 0
        for entry in sorted((e for e in pool if e[0] >= self.settings.max_split), reverse=True):
            if freed >= wanted:
                break
            if entry[2].before is None and entry[2].after is None:
                pool.remove(entry)
                freed += entry[0]
        self.reserved -= freed
        return freed >= wanted and self.reserved + size <= self.cap

    def _collect(self, need: int) -> None:
        """Above the threshold, segments that are wholly free go back before a new one is made."""
        threshold = int(self.settings.collect * self.cap)
        if self.cap >= NO_LIMIT or self.reserved + need <= threshold:
            return
        self._release(need)

    # -------------------------------------------------------------------------------- expandable segments
    def _expand(self, size: int, small: bool) -> Block:
        """Map more pages behind the end of the pool's one segment; a free block there grows."""
        page = SMALL_SEGMENT if small else LARGE_SEGMENT
        pool = self._free[small]
        tail, need = self._end(size, small, page)
        if self.reserved + need > self.cap:
            self._unmap()
            tail, need = self._end(size, small, page)  # the end itself may have been given back
        if self.reserved + need > self.cap:
            raise OutOfMemory
        self._reserve(need)
        self._reach[small] += need  # addresses are never used twice: a hole stays a hole
        if tail is not None and tail.free:
            pool.pop(bisect_left(pool, (tail.size, tail.address)))
            tail.size += need
            return tail
        block = Block(self._reach[small] - need if tail is None else tail.address + tail.size, need, small)
        block.before = tail
        if tail is not None:
            tail.after = block
        self._tails[small] = block
        return block

    def _end(self, size: int, small: bool, page: int) -> tuple[Block | None, int]:
        """The last block of the pool's segment, and what has to be mapped behind it."""
        tail = self._tails[small]
        has = tail.size if tail is not None and tail.free else 0
        return tail, -(-(size - has) // page) * page

    def _unmap(self) -> None:
        """Pages that are wholly free are given back wherever they lie; their addresses can be mapped again."""
        self.retries += 1
        for small, pool in enumerate(self._free):
            page = SMALL_SEGMENT if small else LARGE_SEGMENT
            for size, address, block in list(pool):
                first, last = -(-address // page) * page, (address + size) // page * page
                if last > first:
                    self.reserved -= last - first
                    self._hole(pool, block, first, last)

    def _hole(self, pool: list[tuple[int, int, Block]], block: Block, first: int, last: int) -> None:
        """Take the pages from ``first`` to ``last`` out of a free block."""
        pool.pop(bisect_left(pool, (block.size, block.address)))
        end = block.address + block.size
        before, after = block.before, block.after
        parts = [Block(a, b - a, block.small) for a, b in ((block.address, first), (last, end)) if b > a]
        for part in parts:
            part.free = True
            insort(pool, (part.size, part.address, part))
        # A hole ends the neighbourhood: what lies on its two sides can no longer merge.
        if block.address < first:
            parts[0].before = before
            if before is not None:
                before.after = parts[0]
        elif before is not None:
            before.after = None
        if last < end:
            parts[-1].after = after
            if after is not None:
                after.before = parts[-1]
        elif after is not None:
            after.before = None
        if self._tails[block.small] is block:
            self._tails[block.small] = parts[-1] if last < end else None


def replay(events: Iterable[int | str], settings: Settings | None = None, cap: int = NO_LIMIT) -> Allocator:
    """Run a tape through an allocator; OutOfMemory where the cap does not suffice."""
    allocator = Allocator(settings, cap)
    blocks: list[Block | None] = []
    malloc, free, born = allocator.malloc, allocator.free, blocks.append
    for event in events:
        if event.__class__ is str:
            continue
        if event >= 0:  # type: ignore[operator]
            born(malloc(event))  # type: ignore[arg-type]
        else:
            free(blocks[~event])  # type: ignore[arg-type, operator]
            blocks[~event] = None  # type: ignore[operator]
    return allocator
