"""Expandable segments: one address range per pool, in which pages are mapped and unmapped."""

from __future__ import annotations

from bisect import bisect_left, insort

from gpuready.fit.blocks import Block

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.fit.blocks import Pool

MIB = 1 << 20
ENDLESS = 1 << 56  # torch reserves more addresses than the card has memory


class Segment:
    """The addresses of one pool, in blocks that are used, free, or not mapped."""

    def __init__(self, number: int, pool: Pool) -> None:
        self.page = (2 if number & 1 else 20) * MIB
        self._number, self._pool = number, pool
        self.unmapped = [(0, self._outside(0, ENDLESS))]  # sorted by address

    def _outside(self, address: int, size: int) -> Block:
        made = Block(address, size, self._number)
        made.mapped = False
        return made

    def fitting(self, at: int) -> int:
        """Return the index of the free block to take if the one at ``at`` is large enough.

        A block that could grow counts with its extended size, so that blocks inside the segment are preferred.
        """
        pool = self._pool
        while at + 1 < len(pool) and _reach(pool[at + 1][2]) < _reach(pool[at][2]):
            at += 1
        return at

    def place(self, size: int) -> tuple[Block, int]:
        """Return the lowest free or unmapped block with enough room, and how many bytes must be mapped there."""
        for _, block in self.unmapped:
            first = block.before if block.before is not None and block.before.free else block
            room, missing, here = 0, 0, first
            while room < size and (here.free or not here.mapped):
                if not here.mapped:
                    missing += -(-min(here.size, size - room) // self.page) * self.page
                room += here.size
                if here.after is None:
                    break
                here = here.after
            if room >= size:
                return first, missing
        raise AssertionError("the addresses of a segment came to an end")

    def mapped(self, block: Block, size: int) -> Block:
        """Map the block to this size and take it out of the pool."""
        if not block.mapped:
            block = self._map(block, min(block.size, size))
        while block.size < size:
            assert block.after is not None
            block = self._map(block.after, min(size - block.size, block.after.size))
        self._pool.pop(bisect_left(self._pool, (block.size, block.address)))
        return block

    def _map(self, block: Block, size: int) -> Block:
        pages = -(-size // self.page) * self.page
        self.unmapped.pop(bisect_left(self.unmapped, (block.address,)))
        block.mapped = block.free = True
        if pages < block.size:
            rest = self._outside(block.address + pages, block.size - pages)
            rest.put(block, block.after)
            insort(self.unmapped, (rest.address, rest))
            block.size = pages
        for other in (block.before, block.after):
            if other is not None and other.free:
                self._pool.pop(bisect_left(self._pool, (other.size, other.address)))
                block.take(other)
        insort(self._pool, (block.size, block.address, block))
        return block

    def give_back(self) -> int:
        """Unmap pages that are entirely free; return the number of bytes."""
        given = 0
        for size, address, block in list(self._pool):
            first = -(-address // self.page) * self.page
            last = (address + size) // self.page * self.page
            if last > first:
                given += last - first
                self._unmap(block, first, last)
        return given

    def _unmap(self, block: Block, first: int, last: int) -> None:
        self._pool.pop(bisect_left(self._pool, (block.size, block.address)))
        for start, end in ((block.address, first), (last, block.address + block.size)):
            if end > start:
                part = Block(start, end - start, self._number)
                part.free = True
                part.put(*((block.before, block) if start < first else (block, block.after)))
                insort(self._pool, (part.size, part.address, part))
        block.address, block.size = first, last - first
        block.mapped = block.free = False
        for other in (block.before, block.after):
            if other is not None and not other.mapped:
                self.unmapped.pop(bisect_left(self.unmapped, (other.address,)))
                block.take(other)
        insort(self.unmapped, (block.address, block))


def _reach(block: Block) -> int:
    after = block.after
    return block.size if after is None or after.mapped else block.size + after.size
