"""Blocks of device memory that the allocator splits and merges."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    Pool = list[tuple[int, int, "Block"]]  # free blocks by size, then by address


class Block:
    """A used or free part of a segment, linked to its neighbours. Its addresses may lack memory: not ``mapped``."""

    __slots__ = ("address", "after", "age", "before", "free", "mapped", "pool", "size")

    def __init__(self, address: int, size: int, pool: int) -> None:
        self.address = address
        self.size = size
        self.pool = pool  # pool number: 2 * stream, plus 1 for small blocks
        self.before: Block | None = None
        self.after: Block | None = None
        self.free = False
        self.mapped = True
        self.age = 0  # number of large requests when it was freed

    def put(self, before: Block | None, after: Block | None) -> None:
        """Link this block between two others."""
        self.before, self.after = before, after
        if before is not None:
            before.after = self
        if after is not None:
            after.before = self

    def take(self, other: Block) -> None:
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


def copies(blocks: list[Block]) -> list[Block]:
    """Copy blocks, linked among each other as the originals."""
    made = {block: Block(block.address, block.size, block.pool) for block in blocks}
    for block, other in made.items():
        other.free, other.mapped, other.age = block.free, block.mapped, block.age
        if block.after is not None:
            other.after = after = made[block.after]
            after.before = other
    return list(made.values())
