"""Records the kernels of a traced step: what each operation reads, writes and multiplies. Runs in the target environment.

The rows are those of fit/time/kernel_time.py: a kind, then sizes.
"""

import math

import torch
from convolutions import CONVOLUTION_OPS, Convolution
from known_values import HostMode, find_tensors

PRODUCTS = {"mm": (0, 1), "bmm": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2), "_grouped_mm": (0, 1)}
SOFTMAXES = ("_softmax", "_log_softmax", "_safe_softmax")
NORMS = {
    "native_layer_norm": 2, "_fused_rms_norm": 2, "native_group_norm": 3, "native_batch_norm": 4, "cudnn_batch_norm": 4, "_native_batch_norm_legit": 4,
    "_batch_norm_with_update": 4, "native_group_norm_backward": 5, "native_batch_norm_backward": 6, "cudnn_batch_norm_backward": 6, "batch_norm_backward": 6,
}  # fmt: skip
"""How often the values are read or written: statistics over other values than a row's come from a kernel of their own."""
READS = (
    "_local_scalar_dense",
    "equal",
    "is_nonzero",
    "nonzero",
    "masked_select",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
)
# Without a kernel, or with one that nothing waits for.
SILENT = (
    "empty",
    "empty_like",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
    "_local_scalar_dense",
    "set_",
    "resize_",
)
GATHERS = (
    "embedding",
    "index",
    "gather",
    "index_select",
    "cat",
    "stack",
    "scatter",
    "index_put",
    "index_put_",
    "index_add",
    "index_add_",
)
ALIGNMENT = 16
HAS_TF32 = True  # the card that is asked for: since 8.0
MASKED = ("index", "index_put", "index_put_", "_index_put_impl_")
MANY_TENSORS = ("_foreach_", "_fused_", "_amp_foreach")


class KernelRecorder(HostMode):
    """The rows of kernels in order; ``["phase", name]`` ends a phase."""

    def __init__(self, by_token=False):
        super().__init__()
        self.rows, self.by_token, self.ends, self.forget = [], by_token, [], lambda: None

    def follow_phases(self, recorder):
        """End a phase where the recorder of allocations ends one."""
        mark = recorder.mark

        def mark_both(*words):
            self.rows += [["phase", word] for word in words if word[0].isalpha()]
            mark(*words)

        recorder.mark = mark_both

    def follow_attention(self, kernel_class):
        """Record the fused attention kernels, which the emulation plays without an operation of torch; until the mode ends."""
        forward, backward = kernel_class.forward, kernel_class.backward

        def forward_too(ctx, q, k, v, bias, kernel, *rest):
            ctx.attended = [kernel, *attention_sizes(q, k, bias is not None)]
            self.rows.append(["attention", *ctx.attended])
            return forward(ctx, q, k, v, bias, kernel, *rest)

        def backward_too(ctx, grad):
            # not from ctx.saved_tensors: what a checkpoint recomputes may be read only once
            self.rows.append(["attention backward", *ctx.attended])
            return backward(ctx, grad)

        def forget():
            kernel_class.forward, kernel_class.backward = staticmethod(forward), staticmethod(backward)

        kernel_class.forward, kernel_class.backward, self.forget = (
            staticmethod(forward_too),
            staticmethod(backward_too),
            forget,
        )

    def __exit__(self, *error):
        self.forget()
        return super().__exit__(*error)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        name = func._schema.name.partition("::")[2]
        self.record(name, args, out)
        if name == "argmax" and self.by_token:
            self.end_token()
        return out

    def end_token(self):
        """End the pass of a token, which is the choice of the next one; of the later tokens only the first and the last are kept."""
        self.rows.append(["phase", "first token" if not self.ends else f"token {len(self.ends)}"])
        if len(self.ends) > 2:
            del self.rows[self.ends[-2] : self.ends[-1]]
            self.ends[-1] = self.ends[-2]
        self.ends.append(len(self.rows))

    def record(self, name, args, out):
        """Record the kernel of an operation; a view has none."""
        inputs, outputs = find_tensors(args), find_tensors(out)
        if not outputs and name.startswith(MANY_TENSORS):  # one kernel over lists of tensors, in place
            written = [args[0], *args[2:4]] if name.startswith("_fused") else args[:1]
            outputs = find_tensors(written)
        reads = name in READS or (name in MASKED and any(is_mask(one) for one in args[1]))
        if reads and inputs[0].device.type == "meta":
            self.rows.append(["wait", 0])
        if name in SILENT or not outputs or _is_view(name, inputs, outputs):
            return
        if name in PRODUCTS:
            self.rows.append(describe_product(args[PRODUCTS[name][0]], args[PRODUCTS[name][1]], outputs[0]))
        elif name in CONVOLUTION_OPS:
            self.rows += describe_convolution(name, args, out)
        else:
            self.rows.append(describe_rows(name, inputs, outputs) or describe_elementwise(name, inputs, outputs))


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
    m, n, k = result.numel() // max(1, result.shape[1]), made.weight.shape[0], math.prod(made.weight.shape[1:])
    if made.transposed:
        m, n, k = made.x.numel() // max(1, made.x.shape[1]), made.weight.shape[0], math.prod(made.weight.shape[1:])
    width = product_width(made.weight, torch.backends.cudnn.allow_tf32)
    rows = [["move", 2 * size] for size in made.copy_sizes()]
    sizes = ((m, k, n), (n, k, m)) if made.backward else ((m, n, k),)
    for wanted, what, (rows_out, columns, depth) in zip(made.wanted, ("input", "weight"), sizes, strict=False):
        if not wanted:
            continue
        copied = made.workspace_size(result, what)
        rows += [["move", 2 * copied]] if copied else []
        by_channel = made.groups > 1 and made.groups == made.weight.shape[0]
        moved = count_bytes([made.x, result])
        rows.append(
            ["spread", result.numel() * math.prod(made.weight.shape[2:]) // 4, moved]
            if by_channel
            else ["convolution", rows_out, columns, depth, width, moved]
        )
    if made.backward and made.wanted[2]:
        rows.append(["columns", count_bytes([result])])
    elif not made.backward and args[2] is not None:
        rows.append(["move", 2 * count_bytes([result])])
    return rows


def describe_rows(name, inputs, outputs):
    """Return the row of a kernel that goes over whole rows; None for another one."""
    first, out = inputs[0] if inputs else outputs[0], outputs[0]
    width = first.element_size()
    if name in SOFTMAXES:
        return ["softmax", first.numel(), first.shape[-1], width + out.element_size()]
    if name in ("_softmax_backward_data", "_log_softmax_backward_data"):
        return ["softmax backward", first.numel(), first.shape[-1], width]
    if name == "embedding_dense_backward":
        return ["embedding", inputs[1].numel(), out.shape[-1], out.numel() * out.element_size(), out.element_size()]
    if name in ("topk", "sort", "argsort"):
        return ["topk", first.numel(), width]
    if name == "max_pool2d_with_indices_backward":  # adds up value by value
        return ["spread", 4 * out.numel(), count_bytes(inputs)]
    if name in NORMS:
        apart = (
            "batch" in name and first.dim() > 2 and first.is_contiguous()
        )  # values of a channel lie apart: less of the memory's rate
        return ["spread", first.numel(), int(NORMS[name] * (1.5 if apart else 1)) * first.numel() * width]
    reduces = inputs and len(outputs) == 1 and out.numel() * 2 <= max(one.numel() for one in inputs) == first.numel()
    if reduces and name not in GATHERS:  # a sum, a mean, a maximum
        kept = bool(out.dim()) and out.shape[-1] == first.shape[-1] and out.numel() > 1
        return ["columns" if kept else "rows", count_bytes([first])]
    return None


def describe_elementwise(name, inputs, outputs):
    """Return the row of a kernel over values: by its bytes, or value by value where operands differ in form or type."""
    whole = max((one.numel() for one in outputs), default=0)
    moved = count_bytes(inputs) + count_bytes(outputs)
    if name in GATHERS or not inputs:
        moved = 2 * count_bytes(outputs) if inputs else count_bytes(outputs)
        return ["spread", whole, moved] if inputs else ["move", moved]
    large = [one for one in inputs if one.numel() > 1 and one.dtype.is_floating_point]
    widths = {one.element_size() for one in large}
    if len(widths) > 1:
        return ["mixed", whole, moved]
    wider = bool(widths) and outputs[0].dtype.is_floating_point and outputs[0].element_size() > min(widths)
    same = len({(one.shape, one.stride()) for one in large}) <= 1 and all(one.is_contiguous() for one in large)
    return ["move", moved] if same and not wider else ["spread", whole, moved]


def attention_sizes(q, k, masked):
    return [*q.shape[:3], k.shape[2], q.shape[3], q.element_size(), int(masked), k.numel() * k.element_size()]
