"""The loss of a causal language model, as transformers or a fused kernel computes it."""

from __future__ import annotations

from gpuready.fit.projection import project
from gpuready.fit.tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.fit.layers import Model
    from gpuready.fit.ops import Grads, Ops


def logits_of(model: Model, hidden: Tensor) -> Tensor:
    """Apply the head, with the softcap of the families that have one."""
    ops = model.ops
    logits = project(ops, hidden, model.head)
    if model.shape.softcap_logits:
        logits = ops.scale(logits)
        logits = ops.unary(logits, "tanh", keeps="result")
        logits = ops.scale(logits)
    return logits


def plain(model: Model, hidden: Tensor, logits: Tensor) -> Tensor:
    """Cross entropy over the shifted labels, in fp32."""
    ops = model.ops
    batch, seq, vocabulary = logits.shape
    wide = ops.to(logits, 4)
    padded = ops.scratch(8 * batch * (seq + 1))
    labels = ops.scratch(8 * batch * seq) if batch > 1 else padded
    flat = ops.view(wide, (batch * seq, vocabulary))
    return cross_entropy(ops, flat, labels)


def cross_entropy(ops: Ops, logits: Tensor, labels: Tensor) -> Tensor:
    """log_softmax, whose result is kept, and the negative log-likelihood."""
    ops.tape.op = "cross_entropy"
    scores = ops.like(logits)
    if ops.tracked(logits):
        ops.keep()
        result = ops.detached(scores)

        def through(g: Grads, kept: Tensor = result) -> tuple[Tensor | None, ...]:
            return (ops.like(g[0]),)

        ops.tie(scores, "cross_entropy", (logits,), through)
        del result
    loss, weight = ops.new((), 4), ops.new((), 4)
    if ops.tracked(scores):
        ops.keep()
        shape = scores.shape

        def back(g: Grads, kept: object = (labels, weight)) -> tuple[Tensor | None, ...]:
            return (ops.new(shape, 4),)

        ops.tie(loss, "cross_entropy", (scores,), back)
    return loss


def mean_of(ops: Ops, x: Tensor) -> Tensor:
    """Mean of all values; its gradient is as large as the input."""
    out = ops.new((), 4)
    shape, width = x.shape, x.width
    ops.tie(out, "mean", (x,), lambda g: (ops.new(shape, width),))
    return out
