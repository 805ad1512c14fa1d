"""What a GPU does and torch's meta device does not: fused attention and autocast. Runs in the target environment."""

import contextlib
import importlib
import importlib.util
import sys
from pathlib import Path

import torch
import torch.utils.checkpoint
from torch.overrides import TorchFunctionMode

functional = torch.nn.functional
LARGEST_HEAD_IN_REGISTERS = 128  # of the memory-efficient kernel
ROUNDS_DROPOUT = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 12)
"""Whether torch leaves a dropout that is no sixteenth to other kernels than cuDNN's: 2.11 did not."""
SWITCHES = {
    "cudnn": torch.backends.cuda.cudnn_sdp_enabled, "flash": torch.backends.cuda.flash_sdp_enabled,
    "efficient": torch.backends.cuda.mem_efficient_sdp_enabled,
}  # fmt: skip
"""Kernels of attention, and whether the script allows them."""


def load_gpuready_module(name):
    """Load a module of gpuready's tape; nothing else of gpuready gets onto this path."""
    if "gpuready" not in sys.modules:
        root = Path(__file__).resolve().parents[2]
        places = {"submodule_search_locations": [str(root)]}
        spec = importlib.util.spec_from_file_location("gpuready", str(root / "__init__.py"), **places)
        sys.modules["gpuready"] = made = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
    return importlib.import_module(name)


def first_backward_only(backward):
    """Refuse to build a graph of a backward pass that is played by its sizes: the graph would be cut there."""

    def run(ctx, *grads):
        if torch.is_grad_enabled():
            raise NotImplementedError("the backward pass of a backward pass through a fused kernel is not modelled")
        return backward(ctx, *grads)

    return run


class Attention:
    """``scaled_dot_product_attention`` as the kernel that the card would pick."""

    def __init__(self, capability, autocast):
        self.capability, self.autocast = tuple(capability), autocast
        self.rules = load_gpuready_module("gpuready.fit.tape.attention")
        self.kernels = set()

    def __call__(self, q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
        if self.autocast.active:
            q, k, v, attn_mask = self.autocast.cast((q, k, v, attn_mask), self.autocast.dtype)
        kernel = self.rules.pick_attention_kernel(self.describe(q, k, v, attn_mask, dropout_p, is_causal, enable_gqa))
        self.kernels.add(kernel)
        if kernel == "math":
            # Torch casts the arguments, and runs the fallback without autocast.
            with self.autocast(enabled=False):
                return write_scores_out(q, k, v, attn_mask, dropout_p, is_causal, scale, enable_gqa)
        size = q.shape[-1]
        if size % 8 and kernel == "flash":  # torch pads heads to whole eights
            q, k, v = (functional.pad(x, (0, 8 - size % 8)) for x in (q, k, v))
            return AttentionKernel.apply(q, k, v, None, kernel, self.rules.backward_scratch, is_causal)[..., :size]
        bias = attn_mask
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            bias = torch.empty(attn_mask.shape, dtype=q.dtype, device=q.device)
        if bias is not None and kernel == "efficient":
            if bias.shape[-1] % 8:  # rows must be aligned to 8 values
                bias = functional.pad(bias, (0, 8 - bias.shape[-1] % 8))[..., : attn_mask.shape[-1]]
            bias = bias.expand(*q.shape[:-1], k.shape[-2])
        return AttentionKernel.apply(q, k, v, bias, kernel, self.rules.backward_scratch, is_causal)

    def describe(self, q, k, v, mask, dropout, causal, enable_gqa):
        """Return what decides the kernel."""
        flat = q.dim() == k.dim() == v.dim() == 4
        heads = {x.shape[1] for x in (q, k, v)} if flat else set()
        same = flat and len({x.shape[0] for x in (q, k, v)}) == 1 and (len(heads) == 1 or enable_gqa)
        read = (q, k, v) if mask is None else (q, k, v, mask)  # a learned bias is often permuted: rows that are no rows
        strides = same and all(x.stride(-1) == 1 or x.shape[-1] == 1 for x in read)
        grouped = bool(flat and k.shape[1] != q.shape[1])
        return self.rules.AttentionQuery(
            "sdpa", self.capability, q.element_size(), q.dtype == torch.bfloat16, mask is not None, grouped, q.shape[-1],
            v.shape[-1], dropout if ROUNDS_DROPOUT else 0.0, strides, not causal or q.shape[-2] == k.shape[-2], k.shape[-2],
            mask is not None and mask.requires_grad, tuple(name for name, is_on in SWITCHES.items() if not is_on()),
        )  # fmt: skip


def write_scores_out(q, k, v, mask, dropout, causal, scale, enable_gqa):
    """torch's fallback as it runs on a GPU: in fp32, the mask added in place, and one kernel for the dropout.

    torch's own, run here, adds the mask into a copy and drops values by a mask of floats.
    """
    wide_q, wide_k, wide_v = (x.float() if x.element_size() == 2 else x for x in (q, k, v))
    factor = abs(scale or q.shape[-1] ** -0.5) ** 0.5
    scaled = wide_q * factor
    if causal:
        mask = torch.ones((q.shape[-2], k.shape[-2]), dtype=torch.bool, device=q.device).tril()
    if mask is not None and mask.dtype == torch.bool:
        mask = torch.empty(mask.shape, dtype=scaled.dtype if causal else q.dtype, device=q.device)
    keys, values = wide_k, wide_v
    if enable_gqa and k.shape[-3] != q.shape[-3]:
        keys, values = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (wide_k, wide_v))
    weights = torch.matmul(scaled, keys.transpose(-2, -1) * factor)
    if mask is not None:
        weights.add_(mask)
    weights = torch.ops.aten._safe_softmax(weights, -1)
    if dropout:
        weights = torch.native_dropout(weights, dropout, True)[0]
    out = torch.matmul(weights, values).to(q.dtype)
    weights = weights.to(q.dtype)
    return out


class AttentionKernel(torch.autograd.Function):
    """What a fused attention kernel keeps, and allocates in the backward; ``note`` records that it runs."""

    note = staticmethod(lambda kind, attended: None)

    @staticmethod
    def forward(ctx, q, k, v, bias, kernel, scratch, causal=True):
        masked, keys = 1 if bias is not None else 2 * (not causal), k.numel() * k.element_size()
        ctx.attended = [kernel, *q.shape[:3], k.shape[2], q.shape[3], q.element_size(), masked, keys]
        AttentionKernel.note("attention", ctx.attended)
        batch, heads, seq, _ = q.shape
        size = v.shape[-1]
        states = (torch.empty(1, dtype=torch.long, device=q.device), torch.empty(1, dtype=torch.long, device=q.device))
        if kernel == "cudnn":
            out = torch.empty_like(q) if size == q.shape[-1] else empty_in_layout(q, size)
        else:  # in token order
            out = torch.empty((batch, seq, heads, size), dtype=q.dtype, device=q.device).transpose(1, 2)
        rows = -(-seq // 32) * 32 if kernel == "efficient" else seq
        sums = wide = None
        if kernel == "flash" or any(ctx.needs_input_grad):
            sums = torch.empty((batch, heads, rows), dtype=torch.float32, device=q.device)
        if kernel == "efficient" and max(size, q.shape[-1]) > LARGEST_HEAD_IN_REGISTERS and q.element_size() < 4:
            wide = torch.empty((batch, seq, heads, size), dtype=torch.float32, device=q.device)  # its sums, in fp32
        del wide
        ctx.save_for_backward(q, k, v, out, sums, bias, *states)
        ctx.kernel_and_scratch = kernel, scratch
        return out

    @staticmethod
    @first_backward_only
    def backward(ctx, grad):
        AttentionKernel.note("attention backward", ctx.attended)
        q, k, v = ctx.saved_tensors[:3]
        kernel, scratch = ctx.kernel_and_scratch
        made = [torch.empty_like(x) for x in (q, k, v)]
        for_bias = None
        if ctx.needs_input_grad[3]:
            padded = -(-k.shape[-2] // 16) * 16  # rows of its gradient are whole sixteens
            for_bias = torch.empty((*q.shape[:-1], padded), dtype=q.dtype, device=q.device)[..., : k.shape[-2]]
        grouped = k.shape[1] != q.shape[1]
        sizes = scratch(kernel, *q.shape[:3], k.shape[2], q.shape[3], grouped, q.element_size())
        live_buffers = [torch.empty(n, dtype=torch.uint8, device=q.device) for n in sizes]
        del live_buffers
        return (*made, for_bias, None, None, None)


class RmsNorm:
    """``rms_norm`` as the fused kernel that a GPU has since torch 2.9; the meta device runs it operation by operation."""

    def __init__(self, autocast, rows=None):
        self.autocast, self.plain, self.rows = autocast, functional.rms_norm, [] if rows is None else rows

    def __call__(self, x, normalized_shape, weight=None, eps=None):
        if self.autocast.active:
            weight, x = self.autocast.one(weight, torch.float32), self.autocast.one(x, torch.float32)
        if not hasattr(torch.ops.aten, "_fused_rms_norm") or (weight is not None and weight.dtype != x.dtype):
            return self.plain(x, normalized_shape, weight, eps)
        return RmsNormKernel.apply(x, weight, len(normalized_shape), self.rows)


class RmsNormKernel(torch.autograd.Function):
    """Keeps its input, its weight and a scale for each row."""

    @staticmethod
    def forward(ctx, x, weight, dims, rows):
        scales = torch.empty((*x.shape[:-dims], *[1] * dims), dtype=torch.float32, device=x.device)
        ctx.save_for_backward(x, weight, scales)
        ctx.rows, moved = rows, x.numel() * x.element_size()
        rows.append(["move", 2 * moved])
        return torch.empty_like(x)

    @staticmethod
    @first_backward_only
    def backward(ctx, grad):
        x, weight, scales = ctx.saved_tensors
        ctx.rows.append(norm_backward_row(x, scales.numel()))
        return torch.empty_like(x), None if weight is None else torch.empty_like(weight), None, None


WIDE_ROW, ROW_VALUES = (
    256,
    2100,
)  # of a kernel that handles one value at a time: the time for each row of what sums up the gradients of a norm's weights


def norm_backward_row(x, rows):
    """Return the row of the backward pass of a norm over rows."""
    values = ROW_VALUES * rows * min(1, x.shape[-1] / WIDE_ROW)
    return ["spread", int(x.numel() + values), 3 * x.numel() * x.element_size()]


def native_dropout(x, p=0.5, training=True, inplace=False):
    """On a GPU one kernel, which keeps a byte mask."""
    if not training or not p:
        return x
    made = torch.native_dropout(x, p, True)[0]
    return x.copy_(made) if inplace else made


def empty_in_layout(q, size):
    """Return an empty result with heads of another size, its dimensions in memory as the query's."""
    order = sorted(range(q.dim()), key=lambda n: -q.stride(n))
    shape = [*q.shape[:-1], size]
    made = torch.empty([shape[n] for n in order], dtype=q.dtype, device=q.device)
    return made.permute([order.index(n) for n in range(q.dim())])


NARROW_NAMES = (
    "linear", "matmul", "__matmul__", "__rmatmul__", "mm", "mv", "bmm", "addmm", "addmv", "addbmm", "addr", "baddbmm", "einsum", "chain_matmul",
    "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "prelu", "conv_tbc", "lstm_cell", "gru_cell",
    "rnn_tanh_cell", "rnn_relu_cell",
)  # fmt: skip
WIDE_NAMES = (
    "pow", "__pow__", "__rpow__", "square", "__rdiv__", "__rtruediv__", "acos", "asin", "cosh", "sinh", "tan", "exp", "expm1", "log",
    "log10", "log1p", "log2", "rsqrt", "reciprocal", "erfinv", "cumsum", "cumprod", "dist", "cdist", "renorm", "softmax", "log_softmax",
    "softmin", "softplus", "gumbel_softmax", "layer_norm", "rms_norm", "group_norm", "cosine_similarity", "nll_loss", "mse_loss", "l1_loss",
    "smooth_l1_loss", "kl_div", "poisson_nll_loss", "hinge_embedding_loss", "margin_ranking_loss", "multi_margin_loss",
    "multilabel_margin_loss", "soft_margin_loss", "triplet_margin_loss", "cosine_embedding_loss", "binary_cross_entropy_with_logits",
    "huber_loss", "pdist", "logsumexp", "frobenius_norm", "nuclear_norm", "interpolate", "upsample",
)  # fmt: skip
WIDEST_NAMES = (
    "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sample", "grid_sampler", "index_put", "tensordot", "scatter_add",
)  # fmt: skip
"""CUDA's lists of what autocast runs in 16 bits, in fp32, and in the widest type among its tensors; ``square`` is a power inside."""


def find_functions(names):
    """Return the functions of these names, as every place of torch that has them calls them."""
    places = (torch, torch.Tensor, functional)
    return {getattr(place, name) for place in places for name in names if hasattr(place, name)}


AUTOCAST_NARROW = find_functions(NARROW_NAMES) | {torch.linalg.vecdot, torch.linalg.multi_dot}
AUTOCAST_WIDE = find_functions(WIDE_NAMES)
AUTOCAST_WIDEST = find_functions(WIDEST_NAMES)
AUTOCAST_WIDE_RESULT = find_functions(("sum", "prod", "norm"))
AUTOCAST_WIDE_RESULT |= {torch.linalg.vector_norm, torch.linalg.matrix_norm, torch.linalg.norm}
"""Read in 16 bits and summed in fp32: the kernel casts, and no copy is made."""


def autocast_cross_entropy(
    scores,
    target,
    weight=None,
    size_average=None,
    ignore_index=-100,
    reduce=None,
    reduction="mean",
    label_smoothing=0.0,
):
    """Cross entropy under autocast: the log-softmax keeps the type of the scores, and what follows is in fp32."""
    if label_smoothing or target.is_floating_point() or size_average is not None or reduce is not None:
        return functional.cross_entropy(
            scores.float(), target, weight, size_average, ignore_index, reduce, reduction, label_smoothing
        )
    logs = torch.log_softmax(scores, min(1, scores.dim() - 1), dtype=scores.dtype)
    return functional.nll_loss(logs.float(), target, weight, ignore_index=ignore_index, reduction=reduction)


def autocast_normalize(x, p=2.0, dim=1, eps=1e-12, out=None):
    """A norm in fp32 of what stays in 16 bits."""
    return x / x.norm(p, dim, keepdim=True, dtype=torch.float32).clamp_min(eps).expand_as(x)


def refuse_unsafe_loss(*args, **kwargs):
    """torch refuses this loss under autocast, too."""
    raise RuntimeError("torch refuses binary_cross_entropy under autocast: it is unsafe in 16 bits")


AUTOCAST_INSIDE = {
    functional.cross_entropy: autocast_cross_entropy, functional.normalize: autocast_normalize,
    functional.binary_cross_entropy: refuse_unsafe_loss,
}  # fmt: skip
"""Functions that are on none of the lists, and call what is: autocast acts inside of them."""


def has_tensor_of(dtype, args, kwargs):
    return any(isinstance(x, torch.Tensor) and x.dtype == dtype for x in (*args, *kwargs.values()))


def has_half_tensor(args):
    return bool(args) and isinstance(args[0], torch.Tensor) and args[0].dtype in (torch.float16, torch.bfloat16)


class Autocast(TorchFunctionMode):
    """Autocast by CUDA's lists. A weight is copied once per forward pass, and the copy lives to its end."""

    def __init__(self, dtype):
        super().__init__()
        self.dtype, self.forward, self.off, self.copies = dtype, False, 0, {}

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return self.run(func, args, kwargs or {}, lambda func, args, kwargs: func(*args, **kwargs))

    def run(self, func, args, kwargs, call):
        """Call a function with its tensors cast as CUDA's lists say."""
        if not self.active:
            return call(func, args, kwargs)
        if func in AUTOCAST_NARROW:
            args, kwargs = self.cast(args, self.dtype), self.named(kwargs, self.dtype)
        elif func in AUTOCAST_WIDE and kwargs.get("dtype") is None:
            args, kwargs = self.cast(args, torch.float32), self.named(kwargs, torch.float32)
        elif func in AUTOCAST_WIDE_RESULT and kwargs.get("dtype") is None and has_half_tensor(args):
            kwargs = {**kwargs, "dtype": torch.float32}
        elif func in AUTOCAST_WIDEST:
            widest = torch.float32 if has_tensor_of(torch.float32, args, kwargs) else self.dtype
            args, kwargs = self.cast(args, widest), self.named(kwargs, widest)
        elif func in AUTOCAST_INSIDE:
            return AUTOCAST_INSIDE[func](*args, **kwargs)
        return call(func, args, kwargs)

    @property
    def active(self):
        """Off in the backward, except in a recomputed layer: there a graph is built."""
        return self.dtype is not None and not self.off and (self.forward or torch.is_grad_enabled())

    def cast(self, several, dtype):
        return tuple(reversed([self.one(x, dtype) for x in reversed(several)]))  # the last argument is cast first

    def named(self, several, dtype):
        return {name: self.one(x, dtype) for name, x in several.items()}

    def one(self, x, dtype):
        if isinstance(x, (list, tuple)) and any(isinstance(y, torch.Tensor) for y in x):
            return type(x)(self.one(y, dtype) for y in x)
        if not isinstance(x, torch.Tensor) or not x.is_floating_point() or x.dtype in (dtype, torch.float64):
            return x
        if x.device.type == "cpu":
            return x
        if not (self.forward and x.is_leaf and x._base is None and x.requires_grad and x.dtype == torch.float32):
            return x.to(dtype)
        if id(x) not in self.copies:
            self.copies[id(x)] = x, x.to(dtype)  # with the weight: another would get its number
        return self.copies[id(x)][1]

    def again(self, kinds):
        """Cover recomputed layers: the backward pass does not inherit torch function modes, so they are entered
        there.
        """
        if not kinds["use_reentrant"]:
            kinds["context_fn"] = lambda: (contextlib.nullcontext(), self)
            return
        made = torch.utils.checkpoint.CheckpointFunction
        before = made.backward

        def backward(*args):
            with self:
                return before(*args)

        made.backward = staticmethod(backward)

    @contextlib.contextmanager
    def __call__(self, *args, enabled=True, **named):
        """Replaces ``torch.autocast``, which has no meta device: models disable it around rotary embeddings."""
        self.off += not enabled
        try:
            yield
        finally:
            self.off -= not enabled


class TorchAutocast(Autocast):
    """Autocast as the script itself switches it: torch keeps the state of ``torch.autocast("cuda")``, and has no kernels for it here."""

    def __init__(self):
        TorchFunctionMode.__init__(self)
        self.off, self.copies = 0, {}
        torch.clear_autocast_cache = self.copies.clear

    @property
    def active(self):
        return torch.is_autocast_enabled("cuda") and not self.off

    @property
    def dtype(self):
        return torch.get_autocast_dtype("cuda")

    @property
    def forward(self):
        """Whether the copies of weights are kept."""
        return torch.is_autocast_cache_enabled()
