"""Stretches of device memory that the allocator cuts and joins."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    Pool = list[tuple[int, int, "Block"]]  # free blocks by size, then by address


class Block:
    """A stretch of a segment, used or free; its neighbours share the segment. Addresses may lack memory: not ``mapped``."""

    __slots__ = ("address", "after", "age", "before", "free", "mapped", "pool", "size")

    def __init__(self, address: int, size: int, pool: int) -> None:
        self.address = address
        self.size = size
        self.pool = pool  # its number: that of the stream twice, and one more for small blocks
        self.before: Block | None = None
        self.after: Block | None = None
        self.free = False
        self.mapped = True
        self.age = 0  # how many requests its pool had seen when it became free

    def put(self, before: Block | None, after: Block | None) -> None:
        """Between these two."""
        self.before, self.after = before, after
        if before is not None:
            before.after = self
        if after is not None:
            after.before = self

    def take(self, other: Block) -> None:
        """A neighbour becomes part of this one."""
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
    """The same blocks once more, with each other for neighbours."""
    made = {block: Block(block.address, block.size, block.pool) for block in blocks}
    for block, other in made.items():
        other.free, other.mapped, other.age = block.free, block.mapped, block.age
        if block.after is not None:
            other.after = after = made[block.after]
            after.before = other
    return list(made.values())
