"""How torch's reduction kernel splits a sum over rows, as far as that costs memory.

A sum over many rows into few columns is split over thread blocks, which combine in a global buffer. For the
gradient of a norm's weight that buffer is larger than the gradient by orders of magnitude.
"""

from __future__ import annotations

MAX_THREADS = 512
THREADS_PER_PROCESSOR = 2048
MIN_VALUES_PER_THREAD, MAX_VALUES_PER_THREAD = 16, 256  # values summed per thread: at least, at most


def _floor_power_of_two(n: int) -> int:
    return 1 << (max(n, 1).bit_length() - 1)


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def sum_scratch_sizes(rows: int, columns: int, width: int, processors: int) -> list[int]:
    """Return the scratch sizes in bytes for a sum over ``rows`` into ``columns``, contiguous along the columns."""
    vector = next(v for v in (4, 2, 1) if columns % v == 0)
    most = MAX_THREADS // vector
    across, down = min(_floor_power_of_two(columns // vector), most), min(_floor_power_of_two(rows), most)
    wide = min(across, 32)
    high = min(down, most // wide)
    wide = min(across, most // high)
    per_thread = rows
    if not (per_thread >= high * MIN_VALUES_PER_THREAD or per_thread >= MAX_VALUES_PER_THREAD):
        return []
    per_thread = _ceil_div(per_thread, high)
    grid = _ceil_div(columns // vector, wide)
    target = processors * (THREADS_PER_PROCESSOR // (wide * high))
    if per_thread < MAX_VALUES_PER_THREAD or grid > target:
        return []
    blocks = max(
        min(_ceil_div(target, grid), _ceil_div(per_thread, MIN_VALUES_PER_THREAD)),
        _ceil_div(per_thread, MAX_VALUES_PER_THREAD),
    )
    if blocks <= 1:
        return []
    return [4 * columns * blocks * wide * vector, 4 * grid]
