"""The time of one kernel: from its kind and sizes, and what the GPU reaches.

Every constant is a property of torch's kernels, measured by kernel and size on an H200
(benchmarks/results/kernels-h200.jsonl), and scaled to another GPU by its rates.
"""

from collections.abc import Callable

from gpuready.fit.time.device_speed import DeviceSpeed

Kernel = tuple[int | str, ...]


SHORTEST = 1.7e-6  # seconds of a kernel that does nothing, the next one queued behind it
MATMUL_START = 2.2e-6
TILE_START = 0.97e-6  # filling and emptying the pipeline of one tile
TILES = ((128, 128, 0.97), (64, 128, 0.93))  # rows, columns, share of the rate that the tile reaches
ROUNDING = 0.5  # share of a last wave that is not full which is lost; persistent kernels regain the rest
LEAST_DEPTH = 256  # a split of the inner dimension keeps at least so many values
WIDE_VALUES = 1.35  # how much longer a value of 4 bytes takes that is read and written
MIXED_SHARE = 0.6  # of the rate of a kernel that handles one value at a time, where its operands have two types
TF32 = 3  # instead of the width of fp32, where tensor cores take it rounded
THIN = 128  # an operand with fewer rows or columns than this does not fill a tile
MISALIGNED = {8: 0.31, 4: 0.31, 2: 0.14}  # share of the rate by the bytes to which rows of a 16-bit operand are aligned
CACHE_GAIN = 1.15  # how much faster a tensor is moved that is still in the L2 cache
# Bytes per value and dtype width that a step of the optimizer moves, as a multiple of the width: the sum over its kernels.
OPTIMIZER_SIZES = {
    "adamw": (28.0, 23.3), "adamw_fused": (11.2, 8.5), "adamw_forloop": (22.5, 21.7), "sgd": (3.85, 3.4),
    "sgd_momentum": (7.0, 6.5), "adafactor": (66.0, 25.4), "adafactor_torch": (26.6, 20.3),
    "adamw_8bit": (5.5, 3.2), "paged_adamw_8bit": (5.5, 3.2), "paged_adamw": (12.0, 7.0), "clip": (4.6, 3.6),
}  # fmt: skip
# Attention by kernel: FLOP/s as a share of the matrix rate for heads of 128, forward and backward, and the length at
# which half of it is lost to short rows.
ATTENTION_RATES = {
    "cudnn": (0.80, 0.75, 750, 1300),
    "flash": (0.42, 0.40, 700, 1300),
    "efficient": (0.205, 0.16, 250, 250),
}
WHOLE_LENGTHS, MASKED_LENGTHS = (200, 330), (500, 150)  # of cuDNN's without a causal half, and with a mask
HEAD_SHARES = {64: (0.76, 0.87), 128: (1.0, 1.0), 192: (0.85, 0.75), 256: (0.82, 0.68)}
# The same of cuDNN's with a mask, which it reads for every head: by head size.
MASKED_RATES = {64: (0.36, 0.335), 128: (0.48, 0.367), 192: (0.41, 0.31), 256: (0.35, 0.256)}
FP32_ATTENTION = (0.78, 0.63)  # share of the fp32 rate that the efficient kernel reaches where it is causal
WHOLE_FP32, MASKED_FP32 = (0.8, 1.15), (0.65, 0.95)  # of that, without a causal half, and with a mask
BLOCK = 64  # rows and columns of scores that the efficient kernel computes at once in fp32
ATTENTION_START = (11e-6, 33e-6)
# Of the rates in 16 bits and TF32: the result, the gradient of the input, that of the weight (2,257 convolutions on an H200).
CONVOLUTION_SHARES, CONVOLUTION_MEMORY = ((0.78, 0.95, 0.67), (1.05, 1.1, 0.5)), 0.35
CONVOLUTION_DEPTHS = (1310, 1310, 531)  # that a split of the sum keeps at least
GROUPED, GROUP_START = 1.2, 1.7e-6  # groups run one after the other, by slower kernels
ADDED_SHARE = (
    0.6  # of the memory rate, where a product is added to what is read: experts with their adapters, two shapes
)


def kernel_seconds(kernel: Kernel, speed: DeviceSpeed) -> float:
    """Return the time that one kernel runs."""
    return _KINDS[str(kernel[0])](kernel, speed)


def move_seconds(moved: int, speed: DeviceSpeed) -> float:
    """Return the time to read and write so many bytes; what was just written is partly still in the cache."""
    cached = max(0.0, min(1.0, 1.6 - 1.6 * moved / speed.cache)) if speed.cache else 0.0
    return moved / (speed.memory * (1 + (CACHE_GAIN - 1) * cached))


def _spread(kernel: Kernel, speed: DeviceSpeed) -> float:
    """A kernel that moves one value at a time: broadcast or strided operands, and casts to a wider type."""
    values, moved = int(kernel[1]), int(kernel[2])
    wide = WIDE_VALUES if moved >= 8 * values else 1.0
    return SHORTEST + max(wide * values / speed.elements, move_seconds(moved, speed))


def _softmax(kernel: Kernel, speed: DeviceSpeed) -> float:
    """Long rows are read three times: for the maximum, the sum and the result."""
    elements, row, widths = int(kernel[1]), int(kernel[2]), int(kernel[3])
    again = 0.5 if row <= 1024 else 1.0 if row * 4 <= 48 << 10 else 1.6 if row * 4 <= 200 << 10 else 2.05
    return 2 * SHORTEST + max(elements / speed.elements * 0.85, elements * widths * again / speed.memory)


def matmul_seconds(m: int, n: int, k: int, width: int, batch: int, aligned: int, speed: DeviceSpeed) -> float:
    """Return the time of a matrix product: full waves of tiles over the multiprocessors, or its bytes."""
    rate = speed.matmul_rate(width)
    moved = (4 if width == TF32 else width) * batch * (m * n + n * k + m * k)
    if width == 2 or width == TF32:
        rate *= MISALIGNED.get(aligned, 1.0)
    if min(m, n, k) <= THIN and width == 4:  # too narrow for the tiles: bound by what it reads and writes
        busy = min(1.0, batch * -(-m // 128) * -(-n // 128) / speed.processors) if batch > 1 else 1.0
        return 2 * MATMUL_START + max(2 * batch * m * n * k / (0.8 * rate * busy), moved / (0.45 * speed.memory))
    best = 1e9
    for rows, columns, share in TILES:
        tiles = batch * -(-m // rows) * -(-n // columns)
        for split in (1, 2, 4, 8, 16):
            if split > 1 and (k // split < LEAST_DEPTH or tiles * split > 2 * speed.processors):
                break
            waves = tiles * split / speed.processors
            waves = max(1.0, (1 - ROUNDING) * waves + ROUNDING * -(-tiles * split // speed.processors))
            spent = waves * (2 * rows * columns * (k / split) / (rate / speed.processors * share) + TILE_START)
            if split > 1:  # partial sums in fp32, written and added by one more kernel
                spent += SHORTEST + 2 * 4 * batch * m * n * split / (speed.memory * CACHE_GAIN)
            best = min(best, spent)
    return MATMUL_START + max(best, moved / (speed.memory * (0.75 if min(m, n, k) <= THIN else 1.0)))


def _matmul(kernel: Kernel, speed: DeviceSpeed) -> float:
    m, n, k, width, batch, aligned = (int(size) for size in kernel[1:])
    return matmul_seconds(m, n, k, width, batch, aligned, speed)


def _convolution(kernel: Kernel, speed: DeviceSpeed) -> float:
    """Implicit products in tiles of 128 by 128, for each group, and no more bytes than the operands have."""
    what, m, n, k, width, moved, groups = (int(size) for size in kernel[1:])
    columns = 40 if what == 1 and n <= 16 else 128
    tiles = -(-m // 128) * -(-n // columns)
    split = max(1, min(64, 2 * speed.processors // tiles, k // CONVOLUTION_DEPTHS[what]))
    waves = groups * -(-tiles * split // speed.processors) * (GROUPED if groups > 1 else 1)
    rate = speed.matmul_rate(width) * CONVOLUTION_SHARES[width == TF32][what] / speed.processors
    spent = waves * (2 * 128 * columns * (k / split) / rate + TILE_START)
    return 2 * MATMUL_START + GROUP_START * (groups - 1) + max(spent, moved / (CONVOLUTION_MEMORY * speed.memory))


def _attention(kernel: Kernel, speed: DeviceSpeed) -> float:
    """A fused kernel, forward or backward. Causal rows do half of the work, others all of it."""
    name = str(kernel[1])
    batch, heads, queries, keys, size, width, masked, key_bytes = (int(one) for one in kernel[2:])
    back = kernel[0] != "attention"
    rows, columns = (-(-one // BLOCK) * BLOCK if width == 4 else one for one in (queries, keys))
    operations = 4.0 * batch * heads * rows * columns * size * (2.5 if back else 1.0)
    if not masked and queries == keys:
        operations *= (1 + BLOCK / columns) / 2 if width == 4 else 0.5
    whole, masked = masked == 2 or columns <= BLOCK, masked == 1  # 2: neither a mask nor a causal half
    read = 2 * key_bytes + (2 + back) * batch * heads * queries * size * width
    if queries == 1:
        return 4 * SHORTEST + move_seconds(read, speed)
    if width == 4:
        return ATTENTION_START[back] + operations / (
            speed.matmul_rate(4)
            * FP32_ATTENTION[back]
            * (MASKED_FP32 if masked else WHOLE_FP32 if whole else (1, 1))[back]
        )
    kernel_name = name if name in ATTENTION_RATES else "flash"
    padded = next((one for one in HEAD_SHARES if size <= one), 256)
    share = ATTENTION_RATES[kernel_name][back] * HEAD_SHARES[padded][back] * size / padded
    half = WHOLE_LENGTHS[back] if whole and kernel_name == "cudnn" else ATTENTION_RATES[kernel_name][2 + back]
    share *= keys / (keys + half)
    if masked and kernel_name == "cudnn":
        share = MASKED_RATES[padded][back] * size / padded * keys / (keys + MASKED_LENGTHS[back])
    return ATTENTION_START[back] + max(operations / (speed.matmul_rate(2) * share), move_seconds(read, speed))


def _embedding(kernel: Kernel, speed: DeviceSpeed) -> float:
    """The gradient of a table: zeros, then the rows of the tokens; many tokens are sorted first."""
    rows, size, table, width = (int(one) for one in kernel[1:])
    if rows <= 3072:
        return 8 * SHORTEST + table / speed.memory + rows * size / speed.elements * 0.5
    distinct = min(rows, table // (size * width))
    return 145e-6 + (table + rows * size * (width + 2)) / speed.memory + distinct * 6e-9


def _optimizer(kernel: Kernel, speed: DeviceSpeed) -> float:
    name, elements, width = str(kernel[1]), int(kernel[2]), int(kernel[3])
    return 10 * SHORTEST + elements * width * OPTIMIZER_SIZES[name][width == 4] / speed.memory


_KINDS: dict[str, Callable[[Kernel, DeviceSpeed], float]] = {
    "host": lambda kernel, speed: 0.0,
    "wait": lambda kernel, speed: 0.0,
    # Bound by memory: vectorised loads and stores of contiguous tensors.
    "move": lambda kernel, speed: SHORTEST + move_seconds(int(kernel[1]), speed),
    "spread": _spread,
    "guess": _spread,  # an operation that was not measured
    # Operands of two types: each value is cast as it is loaded.
    "mixed": lambda kernel, speed: SHORTEST + int(kernel[1]) / (MIXED_SHARE * speed.elements),
    "rows": lambda kernel, speed: 2 * SHORTEST + move_seconds(int(kernel[1]), speed),
    "columns": lambda kernel, speed: 5 * SHORTEST + move_seconds(int(kernel[1]), speed),
    "softmax": _softmax,
    "softmax backward": lambda kernel, speed: (
        2 * SHORTEST
        + int(kernel[1])
        * int(kernel[3])
        * (3.0 if int(kernel[2]) * int(kernel[3]) <= 48 << 10 else 4.25)
        / speed.memory
    ),
    "matmul": _matmul,
    "convolution": _convolution,
    # A thin product that is added to a matrix: bound by reading and writing that matrix.
    "added matmul": lambda kernel, speed: MATMUL_START + int(kernel[1]) / (ADDED_SHARE * speed.memory),
    "attention": _attention,
    "attention backward": _attention,
    "embedding": _embedding,
    # Indices are sorted, then the rows are added.
    "index backward": lambda kernel, speed: (
        60e-6 + int(kernel[1]) * 2e-9 + int(kernel[2]) * max(1 / speed.elements, 3 * int(kernel[3]) / speed.memory)
    ),
    "dequantise": lambda kernel, speed: (
        2 * SHORTEST + int(kernel[1]) * max(0.5 / speed.elements, (0.52 + int(kernel[2])) / speed.memory)
    ),
    "topk": lambda kernel, speed: 15e-6 + 4 * int(kernel[1]) * int(kernel[2]) / speed.memory,
    "optimizer": _optimizer,
}
