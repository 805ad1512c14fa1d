"""DPO: a reference model beside the trained one, and log-probabilities instead of a cross entropy."""

from __future__ import annotations

from gpuready.fit.tape.autograd import Tensor
from gpuready.fit.tape.torch_ops import Grads, TorchOps


def log_probabilities(ops: TorchOps, logits: Tensor) -> Tensor:
    """Log-probability of every token: one log-softmax over the vocabulary per row, kept for the backward."""
    rows, seq, vocabulary = logits.shape
    shifted = ops.slice(logits, (rows, seq - 1, vocabulary))
    each = _split_rows(ops, shifted)
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


def _split_rows(ops: TorchOps, x: Tensor) -> list[Tensor]:
    return ops.split(x, [x.shape[1:]] * x.shape[0])


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
