"""Notice memory that grows until the kernel would kill: once, while there is still time. Standard library only, Python 3.8 and newer."""

from __future__ import annotations

from collections.abc import Mapping

from gpuready.launcher import process_status

LEAST_SHARE, LEAST_GROWTH = 0.1, 64 << 20
"""With less of the memory left, and a rank that has grown by at least so much, it is reported."""


class MemoryWatch:
    """The ranks of one agent: what each had at first, and who has grown most since."""

    def __init__(self) -> None:
        self.first: dict[int, tuple[float, int]] = {}
        self.reported = False

    def look(self, pids: Mapping[int, int], now: float) -> tuple[int, str] | None:
        """Return the rank that has grown most, and a sentence, when memory runs out; only once."""
        sizes = {rank: process_status.read_resident_bytes(pid) for rank, pid in pids.items()}
        for rank, size in sizes.items():
            self.first.setdefault(rank, (now, size))
        left, total = process_status.read_memory_room()
        if self.reported or not sizes or not total or left > LEAST_SHARE * total:
            return None
        rank = max(sizes, key=lambda one: sizes[one] - self.first[one][1])
        since, size = self.first[rank]
        if sizes[rank] - size < LEAST_GROWTH:
            return None
        self.reported = True
        grown = f"rank {rank} has grown from {_gib(size)} to {_gib(sizes[rank])} GiB in {now - since:.0f} s"
        return rank, f"memory runs out: {_gib(left)} of {_gib(total)} GiB are left, and {grown}"


def _gib(size: int) -> str:
    return f"{size / (1 << 30):.1f}"
