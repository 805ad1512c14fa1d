"""How torch's reduction kernel splits a sum over rows, as far as that costs memory.

A sum over many rows into few columns is split over thread blocks, which combine in a global buffer. For the
gradient of a norm's weight that buffer is larger than the gradient by orders of magnitude.
"""

from __future__ import annotations

MAX_THREADS = 512
THREADS_PER_PROCESSOR = 2048
FEW, MANY = 16, 256  # values summed per thread: at least, at most


def _pow2(n: int) -> int:
    return 1 << (max(n, 1).bit_length() - 1)


def _up(a: int, b: int) -> int:
    return -(-a // b)


def scratch_of_sum(rows: int, columns: int, width: int, processors: int) -> list[int]:
    """Return the scratch sizes in bytes for a sum over ``rows`` into ``columns``, contiguous along the columns."""
    vector = next(v for v in (4, 2, 1) if columns % v == 0)
    most = MAX_THREADS // vector
    across, down = min(_pow2(columns // vector), most), min(_pow2(rows), most)
    wide = min(across, 32)
    high = min(down, most // wide)
    wide = min(across, most // high)
    per_thread = rows
    if not (per_thread >= high * FEW or per_thread >= MANY):
        return []
    per_thread = _up(per_thread, high)
    grid = _up(columns // vector, wide)
    target = processors * (THREADS_PER_PROCESSOR // (wide * high))
    if per_thread < MANY or grid > target:
        return []
    blocks = max(min(_up(target, grid), _up(per_thread, FEW)), _up(per_thread, MANY))
    if blocks <= 1:
        return []
    return [4 * columns * blocks * wide * vector, 4 * grid]
