"""The workspace that cuDNN asks for, as read from 21,000 convolutions on an H200 with cuDNN 9.19. Runs in the target environment.

Its kernels for tensor cores read channels-last memory: operands in another layout are copied, and so is the result. Where there
is little to compute, or few channels, a kernel that reads the operands as they lie is faster. cuDNN decides it by a model of its
own; the limits below are where most of the measured convolutions change sides.
"""

WIDE = 4  # bytes of a sum
FEW_CHANNELS = 4
SHORT_SUM, LITTLE_WORK = 128, 1 << 27  # products in each sum, and in all
MUCH_WORK = 3 << 30
LITTLE_WIDE_WORK = 1 << 29  # in fp32, below which the result is written as it lies
FEW_RESULTS = 16 * 128 * 128  # of a weight's gradient: fewer tiles of 128 by 128 leave processors idle
MANY_PIXELS = 15_000
SMALL_WEIGHT, FEW_PIXELS = 400_000, 150  # of a row
PARTIAL_SUMS = 2 << 20  # bytes: mostly between 1 and 8 MB
ALL = "xwy"


def is_by_channel(call):
    return call.groups > 1 and call.channels == 1 and not call.transposed


def copied_operands(call, what):
    """Return which of input (x), weight (w) and result (y) are copied; ``groups``: all, each group filled up."""
    if call.last:
        return _copy_uneven_channels(call, what)
    if call.groups > 1:
        return _copy_groups(call, what)
    wide = call.bytes == WIDE
    if call.dims == 3:
        return ALL if what == "weight" else "xw" * (what == "output") if wide else ALL * (what == "input")
    if call.transposed:
        return ALL if what == "weight" or not wide or call.products > 2 * LITTLE_WORK else ""
    if call.taps == 1:
        return _copy_pointwise(call, what)
    if call.channels <= FEW_CHANNELS:
        return _copy_few_channels(call, what)
    if wide:
        return _copy_wide(call, what)
    return "" if what == "output" and call.depth <= SHORT_SUM and call.products <= LITTLE_WORK else ALL


def _copy_uneven_channels(call, what):
    """Channels-last memory is read as it lies, but for channels that are no multiple of 8."""
    if call.groups > 1:
        return "groups" if what == "weight" else "" if call.bytes == WIDE and what == "output" else "xy"
    if call.channels <= FEW_CHANNELS and what == "output":
        return ""
    x, y = "x" * (call.channels % 8 > 0), "y" * (call.results % 8 > 0)
    return (x + "w" + y) * (call.taps > 1 and bool(x + y))


def _copy_groups(call, what):
    wide, little = call.bytes == WIDE, call.products <= 2 * LITTLE_WORK
    if call.taps == 1:
        return "" if wide and what == "output" and little else ALL
    if wide:
        packed = call.pixels <= 10_000 if what == "output" else call.groups > 12 or what == "weight"
    else:
        packed = (call.groups > 3 or what != "output") and call.depth <= (1024 if what == "output" else 3072)
    return "groups" if packed else ALL


def _copy_pointwise(call, what):
    """A product of matrices as they lie, unless it is large and its rows are not aligned; with a stride, pixels are left out."""
    if call.stride == 1:
        uneven = call.bytes < WIDE and call.pixels // call.rows % 8 > 0
        return "xy" if uneven and call.products > MUCH_WORK else ""
    return "xy" if call.bytes < WIDE or what == "weight" or (what == "output" and call.channels > 176) else ""


def _copy_few_channels(call, what):
    """Pictures and waveforms."""
    if call.bytes == WIDE:
        return ALL if what == "weight" and call.depth > 21 else ""
    if what == "weight":
        return ALL
    if call.taps <= call.stride:  # patches
        return ""
    if what == "input":
        return ALL
    in_place = call.depth <= SHORT_SUM // 2 if call.dims == 2 else call.depth > SHORT_SUM // 2
    return "" if in_place or call.products <= LITTLE_WORK else ALL


def _copy_wide(call, what):
    if what == "output":
        if call.products <= LITTLE_WORK // 2:
            return ""
        return "xw" if call.products <= LITTLE_WIDE_WORK and call.rows < 32 else ALL
    if what == "input":
        return "" if call.products <= LITTLE_WORK else ALL
    return "" if call.products <= LITTLE_WIDE_WORK // 2 and call.result_pixels <= 300 else ALL


def group_copies(call):
    """Bytes of all copies with the channels of each group filled up to a power of two, the same for input and result."""
    width = max(8, 1 << (max(call.channels, call.results) - 1).bit_length())
    rows = call.pixels + call.result_pixels + width * call.taps
    return rows * width * call.groups * call.bytes


def partial_sums(call):
    """Bytes of a weight's gradient of which the pixels are split: the sums of the parts."""
    return PARTIAL_SUMS * (call.result_pixels > MANY_PIXELS and call.weights < FEW_RESULTS * call.groups)


def row_sums(call, copies):
    """Bytes of a pointwise weight's gradient: a product for each row of the batch, unless copies take less, in fp32 much less.

    In 16 bits a small weight over few pixels has its products by row all the same.
    """
    size, pixels = WIDE * call.rows * call.weights, call.pixels // call.rows
    if pixels == 1:  # one product
        return 0
    few = call.weights <= SMALL_WEIGHT and pixels <= FEW_PIXELS
    return size if size <= copies * (6 if call.bytes == WIDE else 1) or (few and call.bytes < WIDE) else copies


def by_channel_sums(call):
    """Bytes of the sums of parts of every row; kernels for contiguous memory have none."""
    return 8 * call.rows * WIDE * call.weights if call.last and call.bytes < WIDE else 0
