"""DPO: a reference model beside the trained one, and log-probabilities instead of a cross entropy."""

from __future__ import annotations

from gpuready.fit.tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.fit.ops import Grads, Ops


def log_probabilities(ops: Ops, logits: Tensor) -> Tensor:
    """Log-probability of every token: one log-softmax over the vocabulary per row, kept for the backward."""
    rows, seq, vocabulary = logits.shape
    shifted = ops.slice(logits, (rows, seq - 1, vocabulary))
    each = _unbound(ops, shifted)
    picked = []
    for row in each:
        inside = ops.to(row, 4) if ops.autocast else row
        scores = ops.unary(inside, "log_softmax", keeps="result")
        picked.append(_gathered(ops, scores))
        del scores, inside
    return _stacked(ops, picked)


def _unbound(ops: Ops, x: Tensor) -> list[Tensor]:
    return ops.split(x, [x.shape[1:]] * x.shape[0])


def _gathered(ops: Ops, x: Tensor) -> Tensor:
    """One value per row; its gradient is a full tensor of zeros with that value."""
    ops.tape.op = "gather"
    out = ops.new((x.shape[0],), x.width)
    if ops.tracked(x):
        ops.keep()
        old, width = x.shape, x.width
        ops.tie(out, "gather", (x,), lambda g: (ops.new(old, width),))
    return out


def _stacked(ops: Ops, parts: list[Tensor]) -> Tensor:
    out = ops.new((len(parts), *parts[0].shape), parts[0].width)
    if ops.tracked(*parts):
        shape, count = parts[0].shape, len(parts)

        def back(g: Grads) -> tuple[Tensor | None, ...]:
            return tuple(Tensor(g[0].memory, shape, g[0].width) for _ in range(count))

        ops.tie(out, "stack", tuple(parts), back)
    return out
