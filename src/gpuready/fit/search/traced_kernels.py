"""The kernels of a trace: rows of another process, validated before their time is computed."""

from __future__ import annotations

from typing import Any

from gpuready.fit.time.kernel_time import Kernel

# Kind: how many sizes follow; attention has the kernel's name before them.
KERNEL_SIZES = {
    "move": 1, "rows": 1, "columns": 1, "spread": 2, "mixed": 2, "topk": 2, "softmax": 3, "softmax backward": 3,
    "embedding": 4, "matmul": 6, "attention": 8, "attention backward": 8,
}  # fmt: skip
MAX_SIZE = 1 << 56
MAX_KERNELS = 1_000_000


def read_traced_kernels(rows: Any) -> list[Kernel]:
    """Return the kernels of a trace with the ends of its phases; ValueError where a row is none."""
    if not isinstance(rows, list) or len(rows) > MAX_KERNELS:
        raise ValueError("the trace has no list of kernels, or one that is too long")
    return [_read_row(row) for row in rows]


def _read_row(row: Any) -> Kernel:
    if not isinstance(row, list) or len(row) < 2 or not isinstance(row[0], str):
        raise ValueError("the trace has a kernel without a kind")
    kind, *sizes = row
    named = kind == "phase" or kind.startswith("attention")
    name = sizes.pop(0) if named else ""
    if not isinstance(name, str) or len(name) > 40 or len(sizes) != (0 if kind == "phase" else KERNEL_SIZES.get(kind)):
        raise ValueError(f"the trace has a kernel that is not known, {kind[:40]!r}")
    if not all(type(size) is int and 0 <= size < MAX_SIZE for size in sizes):
        raise ValueError("the trace has a kernel whose sizes are not numbers")
    return (kind, name, *sizes) if named else (kind, *sizes)
