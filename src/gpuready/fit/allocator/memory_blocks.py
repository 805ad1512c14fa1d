"""Blocks of device memory that the allocator splits and merges."""

from __future__ import annotations

FreePool = list[tuple[int, int, "MemoryBlock"]]  # free blocks by size, then by address


class MemoryBlock:
    """A used or free part of a segment, linked to its neighbours. Its addresses may lack memory: not ``mapped``."""

    __slots__ = ("address", "after", "age", "before", "free", "mapped", "pool", "size")

    def __init__(self, address: int, size: int, pool: int) -> None:
        self.address = address
        self.size = size
        self.pool = pool  # pool number: 2 * stream, plus 1 for small blocks
        self.before: MemoryBlock | None = None
        self.after: MemoryBlock | None = None
        self.free = False
        self.mapped = True
        self.age = 0  # number of large requests when it was freed

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


def copy_blocks(blocks: list[MemoryBlock]) -> list[MemoryBlock]:
    """Copy blocks, linked among each other as the originals."""
    copied = {block: MemoryBlock(block.address, block.size, block.pool) for block in blocks}
    for block, other in copied.items():
        other.free, other.mapped, other.age = block.free, block.mapped, block.age
        if block.after is not None:
            other.after = after = copied[block.after]
            after.before = other
    return list(copied.values())
