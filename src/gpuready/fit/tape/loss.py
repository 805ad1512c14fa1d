"""The loss of a causal language model, of DPO too, as transformers or a fused kernel computes it."""

from gpuready.fit.tape.autograd import Tensor
from gpuready.fit.tape.linear_layers import apply_linear
from gpuready.fit.tape.model_parts import ModelParts
from gpuready.fit.tape.torch_ops import Grads, TorchOps


def compute_logits(model: ModelParts, hidden: Tensor) -> Tensor:
    """Apply the head, with the softcap of the families that have one."""
    ops = model.ops
    logits = apply_linear(ops, hidden, model.head)
    if model.shape.softcap_logits:
        logits = ops.scalar_op(logits)
        logits = ops.unary_op(logits, "tanh", keeps="result")
        logits = ops.scalar_op(logits)
    return logits


def plain_loss(model: ModelParts, hidden: Tensor, logits: Tensor) -> Tensor:
    """Cross entropy over the shifted labels, in fp32."""
    ops = model.ops
    batch, seq, vocabulary = logits.shape
    wide = ops.to_width(logits, 4)
    padded = ops.new_scratch(8 * batch * (seq + 1))
    labels = ops.new_scratch(8 * batch * seq) if batch > 1 else padded
    flat = ops.view(wide, (batch * seq, vocabulary))
    return cross_entropy(ops, flat, labels)


def cross_entropy(ops: TorchOps, logits: Tensor, labels: Tensor) -> Tensor:
    """log_softmax, whose result is kept, and the negative log-likelihood, which autocast runs on a copy in fp32."""
    ops.tape.op = "cross_entropy"
    scores = ops.empty_like(logits)
    ops.tape.launch_kernel("softmax", logits.numel, logits.shape[-1], 8)
    if ops.any_requires_grad(logits):
        ops.count_saved()
        result = ops.detach(scores)

        def backward_scores(g: Grads, kept: Tensor = result) -> tuple[Tensor | None, ...]:
            ops.tape.launch_kernel("softmax backward", g[0].numel, g[0].shape[-1], 4)
            return (ops.empty_like(g[0]),)

        ops.add_node(scores, "cross_entropy", (logits,), backward_scores)
        del result
    narrow = scores.width < 4
    if ops.autocast:
        scores = ops.to_width(scores, 4)
    ops.tape.op = "cross_entropy"
    loss, weight = ops.new_empty((), 4), ops.new_empty((), 4)
    if ops.any_requires_grad(scores):
        ops.count_saved()
        shape, width = scores.shape, scores.width
        copy = scores if ops.autocast and narrow else None

        def backward(g: Grads, kept: object = (labels, weight, copy)) -> tuple[Tensor | None, ...]:
            made = ops.new_empty(shape, width)
            ops.tape.launch_kernel("move", made.numel * width)  # zeros, and one value a row
            return (made,)

        ops.add_node(loss, "cross_entropy", (scores,), backward)
    return loss


def mean_loss(ops: TorchOps, x: Tensor) -> Tensor:
    """Mean of all values; its gradient is as large as the input."""
    out = ops.new_empty((), 4)
    shape, width = x.shape, x.width
    ops.add_node(out, "mean", (x,), lambda g: (ops.new_empty(shape, width),))
    return out


def log_probabilities(ops: TorchOps, logits: Tensor) -> Tensor:
    """Log-probability of every token: one log-softmax over the vocabulary per row, kept for the backward."""
    rows, seq, vocabulary = logits.shape
    shifted = ops.slice(logits, (rows, seq - 1, vocabulary))
    each = ops.split(shifted, [shifted.shape[1:]] * shifted.shape[0])
    picked = []
    for row in each:
        inside = ops.to_width(row, 4) if ops.autocast else row
        scores = ops.unary_op(inside, "log_softmax", keeps="result")
        picked.append(_gather_values(ops, scores))
        del scores, inside
    return _stack_rows(ops, picked)


def inplace_log_probabilities(ops: TorchOps, logits: Tensor) -> Tensor:
    """Log-probability of every token by a kernel that writes the gradient over the logits (flash-attn's, in verl)."""
    rows, seq, _ = logits.shape
    ops.tape.op = "log-probabilities"
    out = ops.new_empty((rows, seq), 4)
    if ops.any_requires_grad(logits):
        kept = Tensor(logits.memory, logits.shape, logits.width)
        ops.add_node(out, "log-probabilities", (logits,), lambda g: (kept,))
    return out


def _gather_values(ops: TorchOps, x: Tensor) -> Tensor:
    """One value per row; its gradient is a full tensor of zeros with that value."""
    ops.tape.op = "gather"
    out = ops.new_empty((x.shape[0],), x.width)
    if ops.any_requires_grad(x):
        ops.count_saved()
        old, width = x.shape, x.width
        ops.add_node(out, "gather", (x,), lambda g: (ops.new_empty(old, width),))
    return out


def _stack_rows(ops: TorchOps, parts: list[Tensor]) -> Tensor:
    out = ops.new_empty((len(parts), *parts[0].shape), parts[0].width)
    if ops.any_requires_grad(*parts):
        shape, count = parts[0].shape, len(parts)

        def backward(g: Grads) -> tuple[Tensor | None, ...]:
            return tuple(Tensor(g[0].memory, shape, g[0].width) for _ in range(count))

        ops.add_node(out, "stack", tuple(parts), backward)
    return out
