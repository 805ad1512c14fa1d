"""Attention, computed by the kernel that torch would pick."""

from __future__ import annotations

from gpuready.fit.tape.autograd import Tensor
from gpuready.fit.tape.torch_ops import Grads, TorchOps
from gpuready.model.record import Record

LARGEST_HEAD_IN_REGISTERS = 128  # of the memory-efficient kernel: beyond it, sums in fp32 lie in memory


class AttentionQuery(Record):
    """Properties that decide which attention kernel is used."""

    implementation: str
    capability: tuple[int, int]
    width: int
    bf16: bool
    masked: bool
    grouped: bool
    size: int
    value_size: int = 0  # 0: as the query's
    dropout: float = 0.0
    fusable: bool = True  # four dimensions, one batch size, and equal heads or declared groups
    square: bool = True  # not a causal mask over more keys than queries
    keys: int = 0
    trains_mask: bool = False  # the mask, a learned bias, gets a gradient
    switched_off: tuple[str, ...] = ()  # kernels that the program forbids


def pick_attention_kernel(query: AttentionQuery) -> str:
    """Return the kernel behind scaled_dot_product_attention: cudnn, flash, efficient, math; or eager."""
    if query.implementation != "sdpa":
        return query.implementation
    if not query.fusable:
        return "math"
    half, ampere, off = query.width == 2, query.capability >= (8, 0), query.switched_off
    sizes = query.size, query.value_size or query.size
    if half and query.capability[0] in (9, 10) and "cudnn" not in off and _cudnn_accepts(query, sizes):
        return "cudnn"
    if half and ampere and "flash" not in off and not query.masked and query.square and sizes[0] == sizes[1] <= 256:
        return "flash"
    if query.grouped and not query.masked:  # with a mask the heads are copied beforehand
        return "math"
    if "efficient" in off or (half and query.bf16 and not ampere):
        return "math"
    return "efficient" if not any(size % (16 // query.width) for size in sizes) else "math"


def _cudnn_accepts(query: AttentionQuery, sizes: tuple[int, int]) -> bool:
    """cuDNN: heads of whole eights up to 256, dropout in sixteenths, more than one key, no gradient of the mask."""
    whole = not any(size % 8 or size > 256 for size in sizes)
    return whole and not query.dropout * 16 % 1 and query.keys != 1 and not query.trains_mask


def run_attention(
    ops: TorchOps, kernel: str, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float
) -> Tensor:
    """Run attention on (batch, heads, seq, size) tensors; ``mask`` is boolean."""
    if ops.autocast and kernel != "eager":
        v, k, q = (ops.to_width(x, ops.autocast) for x in (v, k, q))
    if kernel == "math":
        autocast, ops.autocast = ops.autocast, 0  # torch casts the arguments, and runs the fallback without autocast
        out = _math_attention(ops, q, k, v, mask, dropout)
        ops.autocast = autocast
        return out
    return _fused_attention(ops, kernel, q, k, v, mask, dropout)


def build_mask(ops: TorchOps, shape: tuple[int, ...], window: bool, padded: bool) -> Tensor:
    """Build a mask as transformers does: each condition and each conjunction allocates a full mask."""
    ops.tape.op = "mask"
    whole = (1, 1, *shape[2:])
    made = ops.new_empty(whole, 1)
    if window:
        made = ops.new_empty(whole, 1)
        other = ops.new_empty(whole, 1)
        joined = ops.new_empty(whole, 1)
        del other
        made = joined
        del joined
    if padded:
        made = ops.new_empty(whole, 1)
        made = ops.new_empty(shape, 1)
    return made


def repeat_kv_heads(ops: TorchOps, x: Tensor, heads: int, always: bool = False) -> Tensor:
    """Copy key or value heads once per query head: in the model, or (``always``) in torch's math fallback."""
    batch, few, seq, size = x.shape
    if few == heads:
        return x
    ops.tape.op = "repeat heads"
    if few == 1 and not always:  # a single head is expanded as a view
        out = Tensor(x.memory, (batch, heads, seq, size), x.width)
    else:
        out = ops.new_empty((batch, heads, seq, size), x.width)
        out.order = "heads"
        ops.tape.launch_kernel("spread", out.numel, 2 * out.numel * x.width)
    if ops.any_requires_grad(x):
        old = x.shape

        def backward(g: Grads) -> tuple[Tensor | None, ...]:
            made = ops.new_empty(old, g[0].width)
            ops.tape.launch_kernel("spread", g[0].numel, g[0].numel * g[0].width)
            made.order = "heads"
            return (made,)

        ops.add_node(out, "repeat heads", (x,), backward)
    return out


def _fused_attention(
    ops: TorchOps, kernel: str, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float
) -> Tensor:
    """Run a fused kernel: keeps q, k, v, the result, and a log-sum-exp per row."""
    batch, heads, seq, size = q.shape
    tracked = ops.any_requires_grad(q, k, v)
    if tracked:
        ops.count_saved()
    ops.tape.op = "attention"
    bias = None
    if mask is not None:
        # An additive mask in the dtype of the query.
        bias = mask if mask.width > 1 else ops.new_empty(mask.shape, q.width)
        ops.tape.launch_kernel("move", bias.numel * (1 + 2 * q.width))
        if kernel == "efficient" and mask.shape[-1] % 8:  # rows must be aligned to 8 values
            bias = ops.new_empty((*mask.shape[:-1], -(-mask.shape[-1] // 8) * 8), q.width)
    states = (ops.new_scratch(8), ops.new_scratch(8))
    out = ops.new_empty((*q.shape[:3], v.shape[3]), q.width)
    out.order = q.order if kernel == "cudnn" else ""
    rows = seq if kernel != "efficient" else -(-seq // 32) * 32
    # cuDNN allocates log-sums when a graph is built, also in the first pass of non-reentrant checkpointing
    graph = tracked or ops.checkpoint_survivors is not None
    sums = ops.new_empty((batch, heads, rows), 4) if graph or kernel == "flash" else None
    in_memory = kernel == "efficient" and max(size, v.shape[3]) > LARGEST_HEAD_IN_REGISTERS and q.width < 4
    extra = ops.new_scratch(256 if kernel == "cudnn" else 4 * out.numel if in_memory else 0)
    del extra
    sizes = (batch, heads, seq, k.shape[2], size, q.width, int(mask is not None), k.numel * k.width)
    ops.tape.launch_kernel("attention", kernel, *sizes)
    if not tracked:
        return out
    ops.count_saved()
    grouped = k.shape[1] != heads
    inputs = (ops.detach(q), ops.detach(k), ops.detach(v))
    beside = (states, sums, ops.detach(out), bias)

    def backward(g: Grads, inputs: tuple[Tensor, ...] = inputs, beside: object = beside) -> list[Tensor | None]:
        made: list[Tensor | None] = [ops.empty_like(x) for x in inputs]
        ops.tape.launch_kernel("attention backward", kernel, *sizes)
        size_of = backward_scratch(kernel, batch, heads, seq, k_seq, size, grouped, q_width)
        live_buffers = [ops.new_scratch(n) for n in size_of]
        del live_buffers
        return made

    k_seq, q_width = k.shape[2], q.width
    ops.add_node(out, "attention", (q, k, v), backward)
    return out


def backward_scratch(
    kernel: str, batch: int, heads: int, seq: int, keys: int, size: int, grouped: bool, width: int
) -> list[int]:
    """Return the scratch sizes of the backward kernel, beside the three gradients."""
    rows = batch * heads * seq
    if kernel == "cudnn":
        whole = 2 * width * batch * heads * keys * size if grouped else 0
        return [4 * rows * size + whole + 4 * rows + 256]
    if kernel == "flash":
        padded = batch * heads * (-(-seq // 128) * 128)
        deep = -(-size // 32) * 32
        spread = [width * batch * heads * keys * size] * 2 if grouped else []
        return [4 * padded, 4 * padded * deep, *spread]
    # sums of rows, and the gradient of the query by blocks of 64 rows and 64 values
    return [4 * batch * heads * (-(-seq // 32) * 32), 4 * batch * heads * (-(-seq // 64) * 64) * (-(-size // 64) * 64)]


def _math_attention(ops: TorchOps, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float) -> Tensor:
    """Torch's fallback: materializes all scores, in fp32 since torch 2.5; keys are repeated, then scaled."""
    narrow = q.width
    batch, heads, seq, _ = q.shape
    keys = k.shape[2]
    q, k, v = (ops.to_width(x, 4) for x in (q, k, v))
    q_scaled = ops.scalar_op(q)
    bias = None
    if mask is None and seq > 1:
        square = ops.new_empty((seq, keys), 1)
        lower = ops.new_empty((seq, keys), 1)
        del square
        bias = ops.new_empty((seq, keys), q.width)
        del lower
    elif mask is not None:
        bias = ops.new_empty(mask.shape, q.width) if mask.width == 1 else mask
    k_all, v_all = repeat_kv_heads(ops, k, heads, always=True), repeat_kv_heads(ops, v, heads, always=True)
    k_scaled = ops.scalar_op(k_all)
    dense = make_heads_contiguous(ops, q_scaled)
    scores = ops.matmul(dense, k_scaled, (batch, heads, seq, keys))
    del dense, k_scaled
    if bias is not None:  # a mask keeps the query's dtype and is cast as it is added
        mixed = narrow != 4 and mask is not None
        ops.tape.launch_kernel("mixed" if mixed else "spread", scores.numel, 8 * scores.numel)
    weights = _safe_softmax(ops, scores)
    del scores
    weights = ops.dropout(weights, dropout)
    v_all = repeat_kv_heads(ops, v_all, heads, always=True)
    out = ops.matmul(weights, v_all, (*q.shape[:3], v.shape[3]))
    del bias
    if narrow != out.width:  # torch casts the weights too, and drops them
        ops.tape.launch_kernel("move", weights.numel * (weights.width + narrow))
    return ops.to_width(out, narrow)


def _safe_softmax(ops: TorchOps, scores: Tensor) -> Tensor:
    """A softmax that checks for rows without any key, and writes zeros there."""
    out = softmax(ops, scores, scores.width)
    masked = ops.new_empty(scores.shape, 1)
    rows = ops.new_empty(scores.shape[:-1], 1)
    ops.tape.launch_kernel("move", scores.numel * (scores.width + 1))
    ops.tape.launch_kernel("rows", scores.numel)
    ops.tape.launch_kernel("spread", out.numel, 2 * out.numel * out.width)
    del masked, rows
    return out


def softmax(ops: TorchOps, x: Tensor, width: int) -> Tensor:
    """Keeps its result; the backward allocates a product of the same size beside the gradient."""
    ops.tape.op = "softmax"
    tracked = ops.any_requires_grad(x)
    out = ops.empty_like(x, width)
    ops.tape.launch_kernel("softmax", x.numel, x.shape[-1], x.width + width)
    if tracked:
        ops.count_saved()
        old, result = x.width, ops.detach(out)

        def backward(g: Grads, kept: Tensor = result) -> tuple[Tensor | None, ...]:
            made = ops.empty_like(g[0], width)
            for _ in range(2):
                ops.tape.launch_kernel("move", 3 * g[0].numel * width)
            if ops.processors:  # the CUDA kernel first multiplies gradient and result
                beside = ops.empty_like(g[0], width)
                del beside
            return (made if made.width == old else ops.empty_like(made, old),)

        ops.add_node(out, "softmax", (x,), backward)
    return out


def eager_attention(
    ops: TorchOps,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    dropout: float,
    softcap: bool,
    upcast: bool,
    widens: bool,
) -> tuple[Tensor, Tensor]:
    """Attention as the models implement it themselves."""
    batch, heads, seq, _ = q.shape
    keys = k.shape[2]
    key_states, value_states = repeat_kv_heads(ops, k, heads), repeat_kv_heads(ops, v, heads)
    dense = make_heads_contiguous(ops, q)
    turned = make_heads_contiguous(ops, key_states)
    scores = ops.matmul(dense, turned, (batch, heads, seq, keys), columns=not widens)  # gpt2 does not copy its keys
    del dense, turned
    scores = ops.scalar_op(scores)
    if softcap:
        scores = ops.scalar_op(scores)
        scores = ops.unary_op(scores, "tanh", keeps="result")
        scores = ops.scalar_op(scores)
    if mask is not None:
        scores = ops.add(scores, mask)
    if widens and not upcast and scores.width == 2:
        weights = ops.to_width(softmax(ops, scores, 4), q.width)
    elif scores.width == 4 or not upcast:
        if widens:
            weights = ops.to_width(softmax(ops, scores, 4 if ops.autocast else scores.width), q.width)
        else:  # in two steps, reusing one variable
            scores = softmax(ops, scores, 4 if ops.autocast else scores.width)
            weights = ops.to_width(scores, q.width)
    else:
        wide = ops.to_width(scores, 4)
        full = softmax(ops, wide, 4)
        del wide
        weights = ops.to_width(full, q.width)
        del full
    scores = weights
    scores = weights = ops.dropout(weights, dropout)  # the model reuses one variable
    out = ops.matmul(weights, make_heads_contiguous(ops, value_states), (*q.shape[:3], v.shape[3]))
    done = ops.merge_heads(out)
    del out
    return done, ops.detach(weights)


def make_heads_contiguous(ops: TorchOps, x: Tensor) -> Tensor:
    """Copy to head-major memory for a batched product; a single row already has it, with a stride."""
    if x.order == "heads" or 1 in x.shape[:3]:
        return x
    out = ops.copy_contiguous(x, x.shape)
    out.order = "heads"
    return out
