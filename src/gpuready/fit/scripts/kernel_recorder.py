"""Records the kernels of a traced step: what each operation reads, writes and multiplies. Runs in the target environment.

The rows are those of fit/time/kernel_time.py: a kind, then sizes.
"""

import math

import torch
from convolution_workspace import FEW_CHANNELS
from convolutions import CONVOLUTION_OPS, Convolution, has_channels_last
from emulation import norm_backward_row
from kernel_scratch import PROCESSORS
from known_values import find_tensors

PRODUCTS = {"mm": (0, 1), "bmm": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2), "_grouped_mm": (0, 1)}
SOFTMAXES = ("_softmax", "_log_softmax", "_safe_softmax")
SOFTMAX_GRADIENTS = ("_softmax_backward_data", "_log_softmax_backward_data")
NORMS = {
    "native_layer_norm": 2, "_fused_rms_norm": 2, "native_batch_norm": 4, "cudnn_batch_norm": 4, "_native_batch_norm_legit": 4,
    "_batch_norm_with_update": 4, "native_batch_norm_backward": 6, "cudnn_batch_norm_backward": 6, "batch_norm_backward": 6,
}  # fmt: skip
"""How often the values are read or written: statistics over other values than a row's come from a kernel of their own."""
READS = ("_local_scalar_dense", "equal", "is_nonzero", "nonzero", "masked_select")
# Without a kernel, or with one that nothing waits for: and whatever makes an empty tensor.
SILENT, EMPTY = ("_local_scalar_dense", "set_", "resize_"), ("empty", "new_empty")
ROW_GATHERS = ("embedding", "index", "index_select")
JOINS = ("cat", "stack")
SCATTERS = {"gather": 6, "scatter": 7, "scatter_add": 12, "index_add": 3.3, "index_copy": 2.2}
"""For each value that is moved, as a multiple of a kernel that handles values one by one."""
VALUE_COSTS = {
    "avg_pool2d": 1.3, "avg_pool2d_backward": 7.6, "max_pool2d_with_indices": 1.7, "max_pool2d_with_indices_backward": 4.7,
    "_adaptive_avg_pool2d": 2.2, "_adaptive_avg_pool2d_backward": 4, "upsample_nearest2d": 1.1, "upsample_nearest2d_backward": 0.8,
    "upsample_bilinear2d": 9.9, "upsample_bilinear2d_backward": 6, "grid_sampler_2d": 3, "grid_sampler_2d_backward": 11,
    "reflection_pad2d": 2.7, "reflection_pad2d_backward": 2.7, "im2col": 1.4, "col2im": 3.8, "glu": 0.85, "gelu": 0.55, "gelu_backward": 0.77, "native_dropout": 0.75, "roll": 4.2, "where": 1.1, "masked_fill": 1.9,
    "masked_fill_": 1.3, "constant_pad_nd": 1.2, "pixel_shuffle": 1.3, "pixel_unshuffle": 1.3, "mse_loss_backward": 1.2, "smooth_l1_loss_backward": 1.6,
    "max_pool3d_with_indices": 1.2, "max_pool3d_with_indices_backward": 1.2, "avg_pool3d": 1.4, "avg_pool3d_backward": 1.4, "adaptive_max_pool2d": 1.3,
    "upsample_trilinear3d": 2.9, "upsample_trilinear3d_backward": 10, "upsample_nearest3d": 2.75, "upsample_nearest3d_backward": 0.9, "upsample_bicubic2d": 15,
    "upsample_linear1d": 19, "replication_pad2d": 2, "replication_pad2d_backward": 3, "flip": 1.1, "tril": 1.2, "triu": 1.2, "repeat": 1,
    "var": 0.7, "std": 0.8, "argmax": 0.6, "argmin": 0.6, "max": 0.6, "min": 0.6,
}  # fmt: skip
"""The same for each value of the larger of operand and result: of 280 operations on an H200."""
GROUP_VALUES = 300  # of one thread block, which sums up a group or a channel: time for each of its values
NORMED_ROW, GATHERED_ROW, SORTED_ROW, WHOLE_ROWS = 520, 257, 120, 0.2
PIXEL_LOSS, COLUMN_VALUES, COLUMN_STEP = 15, (3.4, 2), (365_000, 230_000)
"""Of rows and of columns, as values that are handled one by one (552 cases on an H200)."""
LIST_PASSES, CAST = 1.15, 1.2
"""Of the bytes of a kernel over lists of tensors, and of the values of a cast to a wider type."""
FULL_PASSES = {"mse_loss": 5, "smooth_l1_loss": 5, "binary_cross_entropy_with_logits": 12, "logsumexp": 6}
SORT_VALUES, SORT_START, TOPK_VALUES, TOPK_START = 8, 8_000_000, 5, 15_000_000
TURNED, LATENCY, LANES = 2.8, 75_000, 4096
"""Of a sort for each byte of a key, of a top-k for each value, of a copy that transposes; of each step of a running sum, and its columns at once."""
ALIGNMENT = 16
COPY_PASSES = 4.6  # over what a convolution copies, as bytes that are moved
BY_CHANNEL = (0.28, 0.45, 0.7)  # values for each product of the result, of the gradient of the input, and of the weight
LINE_GROUPS = 4  # groups of sound take as many times longer than those of pictures, but for the weight
LONG_TAPS, LONG_VALUES = 64, (0.25, 0.03)  # of such a group, as the positions of wav2vec2: values for each product
ONE_READ, CHANNEL_VALUES = 40_000, (300, 580)
"""cuDNN normalises fp16 with one thread block a channel: what of it is read once, and values for each forward and backward (8 sizes, H200)."""
HAS_TF32 = True  # the card that is asked for: since 8.0
MASKED = ("index", "index_put", "index_put_", "_index_put_impl_")
PLAIN = (
    "_foreach_", "_fused_", "_amp_foreach", "clone", "copy_", "_to_copy", "fill", "zero", "one", "full", "new_", "rand", "normal", "uniform", "bernoulli",
    "exponential", "arange", "linspace", "slice", "select", "as_strided", "diagonal", "eye", "scalar_tensor", "lift", "expand", "view", "complex", "real", "imag",
)  # fmt: skip
"""What fills, copies or changes values one by one, beside what torch calls pointwise."""
CONTIGUOUS = ("native_layer_norm", "native_group_norm", "_softmax", "_log_softmax")
MANY_TENSORS = ("_foreach_", "_fused_", "_amp_foreach")


class KernelRecorder:
    """The rows of kernels in order; ``["phase", name]`` ends a phase. The recorder of allocations tells it every operation."""

    def __init__(self, by_token=False):
        self.rows, self.by_token, self.ends = [], by_token, []

    def end_phases(self, words):
        """End a phase where the recorder of allocations ends one."""
        self.rows += [["phase", word] for word in words if word[0].isalpha() and word != "empty"]

    def note_attention(self, kind, attended):
        """Note a fused attention kernel, which the emulation plays without an operation of torch."""
        self.rows.append([kind, *attended])

    def end_token(self):
        """End the pass of a token, which is the choice of the next one; of the later tokens only the first and the last are kept."""
        self.rows.append(["phase", "first token" if not self.ends else f"token {len(self.ends)}"])
        if len(self.ends) > 2:
            del self.rows[self.ends[-2] : self.ends[-1]]
            self.ends[-1] = self.ends[-2]
        self.ends.append(len(self.rows))

    def record(self, func, name, args, out):
        """Record the kernel of an operation; a view has none."""
        inputs, outputs = find_tensors(args), find_tensors(out)
        if not outputs and name.startswith(MANY_TENSORS):  # one kernel over lists of tensors, in place
            written = [args[0], *args[2:4]] if name.startswith("_fused") else args[:1]
            outputs = find_tensors(written)
        reads = (
            name in READS
            or name.startswith(("_unique", "unique_"))
            or (name in MASKED and any(is_mask(one) for one in args[1]))
        )
        if reads and inputs[0].device.type == "meta":
            self.rows.append(["wait", 0])
        if name in SILENT or name.startswith(EMPTY) or not outputs or _is_view(name, inputs, outputs):
            return
        if name == "_grouped_mm" and inputs[0].dtype != torch.bfloat16:  # expert by expert, whose rows the host reads
            kind, rows, columns, depth, width, experts, aligned = describe_product(*inputs[:2], outputs[0])
            self.rows += [["wait", 0], *[[kind, rows, columns, depth, width, 1, aligned]] * experts]
        elif name in PRODUCTS:
            self.rows.append(describe_product(args[PRODUCTS[name][0]], args[PRODUCTS[name][1]], outputs[0]))
        elif name in CONVOLUTION_OPS:
            self.rows += describe_convolution(name, args, out)
        else:
            if name.startswith(CONTIGUOUS):  # a kernel that reads rows has others copied first
                copied = [one for one in inputs if not one.is_contiguous()]
                self.rows += [["spread", one.numel(), 2 * count_bytes([one])] for one in copied]
            if name == "_softmax_backward_data":  # the gradient is multiplied with the result first
                self.rows.append(["move", 3 * count_bytes(outputs)])
            row = describe_by_value(name, inputs, outputs, args) or describe_rows(name, inputs, outputs, args)
            if row is None:
                row = describe_elementwise(name, inputs, outputs)
                alike = (
                    len({one.shape for one in (*inputs, *outputs) if one.dim()}) == 1 and "_linalg" not in f"_{name}"
                )
                if not (
                    torch.Tag.pointwise in func.tags or alike or name.startswith(PLAIN)
                ):  # its kernels were not measured
                    row = ["guess", 2 * max(one.numel() for one in (*inputs, *outputs)), row[-1]]
            self.rows.append(row)
        if name == "argmax" and self.by_token:
            self.end_token()


def is_mask(index):
    return isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8)


def _is_view(name, inputs, outputs):
    if name.endswith(("_", "_out")):
        return False
    known = {one.untyped_storage()._cdata for one in inputs}
    return all(one.untyped_storage()._cdata in known for one in outputs)


def count_bytes(tensors):
    """Return the bytes of tensors; an expanded one counts what it holds."""
    return sum(min(one.numel() * one.element_size(), one.untyped_storage().nbytes()) for one in tensors)


def describe_product(a, b, out):
    """Return the row of ``a @ b``; a grouped product is one batch per expert."""
    width, batch = product_width(a, torch.get_float32_matmul_precision() != "highest"), 1
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    if b.dim() == 3 and a.dim() == 2:
        batch = b.shape[0]
        m = max(1, -(-m // batch))
    elif a.dim() == 3:
        batch = a.shape[0]
    aligned = ALIGNMENT
    for length in (n, k):
        while length * a.element_size() % aligned:
            aligned //= 2
    return ["matmul", m, n, k, width, batch, aligned]


def product_width(tensor, allowed):
    """Return the bytes of a value in a product; 3 where tensor cores may take fp32 as TF32."""
    return 3 if tensor.dtype is torch.float32 and allowed and HAS_TF32 else tensor.element_size()


def describe_convolution(name, args, out):
    """Return a convolution as the products that it is, with the copies into the layout of cuDNN's kernels, and its bias."""
    made = Convolution(name, args)
    result = made.grad if made.backward else out
    # Of the convolution that a transposed one turns around.
    x, y = (result, made.x) if made.transposed else (made.x, result)
    taps, groups = math.prod(made.weight.shape[2:]), made.groups
    width = product_width(made.weight, torch.backends.cudnn.allow_tf32)
    unit = ALIGNMENT // made.weight.element_size()
    channels, results = (fill_channels(one.shape[1] // groups, unit) for one in (x, y))
    pixels, result_pixels = (one.numel() // max(1, one.shape[1]) for one in (x, y))
    products = (
        (result_pixels, results, channels * taps),
        (pixels, channels, results * taps // made.stride),
        (results, channels * taps, result_pixels),
    )
    rows = [["move", 2 * size] for size in made.copy_sizes()]
    for wanted, what in zip(made.wanted, ("input", "weight") if made.backward else ("output",), strict=False):
        if not wanted:
            continue
        copied = made.workspace_size(result, what)
        rows += [["move", int(COPY_PASSES * copied)]] if copied else []
        kind = 2 if what == "weight" else int((what == "input") != made.transposed)
        moved = count_bytes([made.x, result])
        if groups > 1 and groups == made.weight.shape[0]:
            rows.append(["spread", int(BY_CHANNEL[kind] * result.numel() * taps), moved])
        else:
            if groups > 1 and taps >= LONG_TAPS and result.dim() == 3:  # no kernel of tensor cores, and any of several
                rows.append(["guess", int(LONG_VALUES[made.backward] * groups * math.prod(products[kind])), moved])
                continue
            slow = LINE_GROUPS if groups > 1 and kind < 2 and result.dim() == 3 else 1
            rows.append(["convolution", kind, *products[kind], width, moved, groups * slow])
    if made.backward and made.wanted[2]:
        rows.append(["columns", count_bytes([result])])
    elif not made.backward and args[2] is not None:
        rows.append(["move", 2 * count_bytes([result])])
    return rows


def fill_channels(channels, unit):
    """Return the channels that a kernel computes: whole units of 16 bytes, and three of them where there are few."""
    return -(-channels // unit) * unit * (3 if channels <= FEW_CHANNELS else 1)


def describe_by_value(name, inputs, outputs, args):
    """Return the row of a kernel whose time goes by its values; None for another one."""
    first, out = inputs[0] if inputs else outputs[0], outputs[0]
    values, moved = max(first.numel(), out.numel()), count_bytes(inputs) + count_bytes(outputs)
    indices = inputs[1] if len(inputs) > 1 else None
    if name == "gather" and not indices.stride(-1):  # whole rows
        return gather_row(out, indices.shape[0])
    if cost := SCATTERS.get(name.removesuffix("_")):
        cost *= WHOLE_ROWS if name.startswith("scatter_add") and not indices.stride(-1) else 1
        return ["spread", int(cost * inputs[-1].numel()), 3 * inputs[-1].numel() * first.element_size()]
    if name in ("index_put", "index_put_", "_index_put_impl_") and len(inputs) > 2:
        rows, added = inputs[1].numel(), inputs[-1].numel()
        if len(args) > 3 and args[3]:
            return ["spread", int(max(1.2 * added, SORTED_ROW * rows)) + SORT_START, 3 * added * first.element_size()]
        return ["spread", 2 * max(added, rows), 2 * max(added, rows) * first.element_size()]
    if name.startswith("native_group_norm"):
        back = name.endswith("backward")
        values, rows = first.numel(), args[3 + 2 * back] * args[6]  # of one group, backward of one channel
        blocks = GROUP_VALUES * (values // rows) * -(-rows // (4 * PROCESSORS))
        return ["spread", int((1.2, 3)[back] * values) + blocks, moved]
    if name in VALUE_COSTS:
        return ["spread", int(VALUE_COSTS[name] * values), moved]
    if name in FULL_PASSES and len(inputs) and out.numel() < first.numel():
        return ["move", FULL_PASSES[name] * first.numel() * first.element_size()]
    if name in ("cumsum", "logcumsumexp", "cumprod"):
        dim = args[1] % max(1, first.dim())
        if first.stride(dim) == 1 or not first.dim():
            return ["spread", int(2.6 * values), moved]
        columns = values // max(1, first.shape[dim])
        steps = first.shape[dim] * max(1, columns // (16 * LANES))
        return ["spread", int(steps * LATENCY * (1 + min(1, columns / LANES))), moved]
    if name in ("sort", "argsort", "_unique2", "unique_dim"):
        return ["spread", SORT_VALUES * first.element_size() * values + SORT_START, moved]
    if name == "topk":
        return ["spread", TOPK_VALUES * values + TOPK_START, moved]
    if name == "native_layer_norm_backward":
        return norm_backward_row(inputs[1], inputs[2].numel())
    if name.startswith("nll_loss2d"):  # pixels: what is slow are their classes
        return ["spread", PIXEL_LOSS * inputs[1 + name.endswith("backward")].numel() + SORT_START, count_bytes(outputs)]
    if name.startswith("nll_loss"):
        return ["rows", count_bytes(outputs)]
    if name in ("clone", "copy_", "_to_copy") and _is_turned(inputs[-1], out):
        return ["spread", int(TURNED * values), moved]
    if name in ROW_GATHERS:
        return gather_row(out, out.numel() // max(1, out.shape[-1]) if out.dim() else 1)
    if name in JOINS:
        whole = all(one.is_contiguous() for one in inputs)
        return ["move", moved] if whole else ["spread", 2 * out.numel(), moved]
    return None


def gather_row(out, rows):
    """Return the row of a kernel that copies rows of a table: narrow ones take as long as each needs a thread block."""
    return ["spread", GATHERED_ROW * rows, 2 * count_bytes([out])]


def _is_turned(source, made):
    """Whether a copy reads columns and writes rows."""
    if source.shape != made.shape or source.numel() < 1 << 16:
        return False
    nearest = [min((n for n in range(one.dim()) if one.shape[n] > 1), key=one.stride) for one in (source, made)]
    return nearest[0] != nearest[1] and source.stride(nearest[0]) == 1


def describe_rows(name, inputs, outputs, args):
    """Return the row of a kernel that goes over whole rows; None for another one."""
    first, out = inputs[0] if inputs else outputs[0], outputs[0]
    width = first.element_size()
    if name in (*SOFTMAXES, *SOFTMAX_GRADIENTS):
        back = name in SOFTMAX_GRADIENTS
        dim = args[1 + back] % max(1, first.dim())
        if first.dim() and dim < first.dim() - 1:  # one thread a column
            values = max(COLUMN_VALUES[back] * first.numel(), COLUMN_STEP[back] * first.shape[dim])
            return ["spread", int(values), 3 * first.numel() * width]
        last, written = first.shape[-1] if first.dim() else 1, 0 if back else out.element_size()
        return ["softmax backward" if back else "softmax", first.numel(), last, width + written]
    if name == "embedding_dense_backward":
        return ["embedding", inputs[1].numel(), out.shape[-1], out.numel() * out.element_size(), out.element_size()]
    if name in NORMS:
        back, trains = "backward" in name, next((one for one in args if isinstance(one, bool)), True)
        if "batch" in name and trains and first.dtype is torch.float16 and first.dim() > 2:
            values, last = first.numel() // max(1, first.shape[1]), first.dim() == 4 and has_channels_last(first)
            if values > ONE_READ and not last:  # one thread block a channel
                waves = -(-first.shape[1] // PROCESSORS)
                return ["spread", CHANNEL_VALUES[back] * values * waves, first.numel() * width]
        # Values of a channel lie apart: less of the memory's rate.
        apart = "batch" in name and first.dim() > 2 and first.is_contiguous()
        passes = NORMS[name]
        # Torch's own kernels, not cuDNN's.
        own = "batch" in name and first.dtype is torch.bfloat16 and first.shape[1] < 512
        rows = first.numel() // max(1, first.shape[-1]) * ("layer" in name)
        return [
            "spread",
            max(int((0.65 * passes if own else 1) * first.numel()), NORMED_ROW * rows),
            int(passes * (1.5 if apart else 1)) * first.numel() * width,
        ]
    reduces = (
        inputs
        and len(outputs) == 1
        and "backward" not in name
        and out.numel() * 2 <= max(one.numel() for one in inputs) == first.numel()
    )
    if reduces:  # a sum, a mean, a maximum
        kept = bool(out.dim()) and out.shape[-1] == first.shape[-1] and out.numel() > 1
        return ["columns" if kept else "rows", count_bytes([first])]
    return None


def describe_elementwise(name, inputs, outputs):
    """Return the row of a kernel over values: by its bytes, or value by value where operands differ in form or type."""
    whole = max((one.numel() for one in outputs), default=0)
    moved = count_bytes(inputs) + count_bytes(outputs)
    if not inputs:
        return ["move", moved]
    large = [one for one in inputs if one.numel() > 1 and one.dtype.is_floating_point]
    widths = {one.element_size() for one in large}
    if len(widths) > 1:
        return ["mixed", whole, moved]
    wider = bool(widths) and outputs[0].dtype.is_floating_point and outputs[0].element_size() > min(widths)
    same = len({(one.shape, one.stride()) for one in large}) <= 1 and all(one.is_contiguous() for one in large)
    if name.startswith(MANY_TENSORS):
        moved = int(LIST_PASSES * moved)
    return ["move", moved] if same and not wider else ["spread", int((CAST if wider else 1) * whole), moved]
