"""Expandable segments: one address range per pool, in which pages are mapped and unmapped."""

from __future__ import annotations

from bisect import bisect_left, insort

FreePool = list[tuple[int, int, "MemoryBlock"]]  # free blocks by size, then by address


class MemoryBlock:
    """A used or free part of a segment, linked to its neighbours. Its addresses may lack memory: not ``mapped``."""

    __slots__ = ("address", "after", "before", "free", "mapped", "pool", "size")

    def __init__(self, address: int, size: int, pool: int) -> None:
        self.address = address
        self.size = size
        self.pool = pool  # pool number: 2 * stream, plus 1 for small blocks
        self.before: MemoryBlock | None = None
        self.after: MemoryBlock | None = None
        self.free = False
        self.mapped = True

    def link_between(self, before: MemoryBlock | None, after: MemoryBlock | None) -> None:
        """Link this block between two others."""
        self.before, self.after = before, after
        if before is not None:
            before.after = self
        if after is not None:
            after.before = self

    def absorb_neighbour(self, other: MemoryBlock) -> None:
        """Merge a neighbour into this block."""
        if other is self.before:
            self.address = other.address
            self.before = other.before
            if self.before is not None:
                self.before.after = self
        else:
            self.after = other.after
            if self.after is not None:
                self.after.before = self
        self.size += other.size


MIB = 1 << 20
ADDRESS_SPACE_SIZE = 1 << 56  # torch reserves more addresses than the card has memory


class ExpandableSegment:
    """The addresses of one pool, in blocks that are used, free, or not mapped."""

    def __init__(self, number: int, pool: FreePool) -> None:
        self.page_size = (2 if number & 1 else 20) * MIB
        self._number, self._pool = number, pool
        self.unmapped_blocks = [(0, self._new_unmapped_block(0, ADDRESS_SPACE_SIZE))]  # sorted by address

    def _new_unmapped_block(self, address: int, size: int) -> MemoryBlock:
        block = MemoryBlock(address, size, self._number)
        block.mapped = False
        return block

    def choose_free_block(self, at: int) -> int:
        """Return the index of the free block to take if the one at ``at`` is large enough.

        A block that could grow counts with its extended size, so that blocks inside the segment are preferred.
        """
        pool = self._pool
        while at + 1 < len(pool) and _extended_size(pool[at + 1][2]) < _extended_size(pool[at][2]):
            at += 1
        return at

    def find_space(self, size: int) -> tuple[MemoryBlock, int]:
        """Return the lowest free or unmapped block with enough room, and how many bytes must be mapped there."""
        for _, block in self.unmapped_blocks:
            first = block.before if block.before is not None and block.before.free else block
            room, missing, here = 0, 0, first
            while room < size and (here.free or not here.mapped):
                if not here.mapped:
                    missing += -(-min(here.size, size - room) // self.page_size) * self.page_size
                room += here.size
                if here.after is None:
                    break
                here = here.after
            if room >= size:
                return first, missing
        raise AssertionError("the addresses of a segment came to an end")

    def map_block(self, block: MemoryBlock, size: int) -> MemoryBlock:
        """Map the block to this size and take it out of the pool."""
        if not block.mapped:
            block = self._map_pages(block, min(block.size, size))
        while block.size < size:
            assert block.after is not None
            block = self._map_pages(block.after, min(size - block.size, block.after.size))
        self._pool.pop(bisect_left(self._pool, (block.size, block.address)))
        return block

    def _map_pages(self, block: MemoryBlock, size: int) -> MemoryBlock:
        pages = -(-size // self.page_size) * self.page_size
        self.unmapped_blocks.pop(bisect_left(self.unmapped_blocks, (block.address,)))
        block.mapped = block.free = True
        if pages < block.size:
            rest = self._new_unmapped_block(block.address + pages, block.size - pages)
            rest.link_between(block, block.after)
            insort(self.unmapped_blocks, (rest.address, rest))
            block.size = pages
        for other in (block.before, block.after):
            if other is not None and other.free:
                self._pool.pop(bisect_left(self._pool, (other.size, other.address)))
                block.absorb_neighbour(other)
        insort(self._pool, (block.size, block.address, block))
        return block

    def release_free_pages(self) -> int:
        """Unmap pages that are entirely free; return the number of bytes."""
        released = 0
        for size, address, block in list(self._pool):
            first = -(-address // self.page_size) * self.page_size
            last = (address + size) // self.page_size * self.page_size
            if last > first:
                released += last - first
                self._unmap_pages(block, first, last)
        return released

    def _unmap_pages(self, block: MemoryBlock, first: int, last: int) -> None:
        self._pool.pop(bisect_left(self._pool, (block.size, block.address)))
        for start, end in ((block.address, first), (last, block.address + block.size)):
            if end > start:
                part = MemoryBlock(start, end - start, self._number)
                part.free = True
                part.link_between(*((block.before, block) if start < first else (block, block.after)))
                insort(self._pool, (part.size, part.address, part))
        block.address, block.size = first, last - first
        block.mapped = block.free = False
        for other in (block.before, block.after):
            if other is not None and not other.mapped:
                self.unmapped_blocks.pop(bisect_left(self.unmapped_blocks, (other.address,)))
                block.absorb_neighbour(other)
        insort(self.unmapped_blocks, (block.address, block))


def _extended_size(block: MemoryBlock) -> int:
    after = block.after
    return block.size if after is None or after.mapped else block.size + after.size
