"""Liger's kernels, which replace norms, gate, rotary embedding and loss."""

from __future__ import annotations

from gpuready.fit.tensor import Tensor, reshaped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.fit.layers import Model
    from gpuready.fit.ops import Grads, Ops


def norm(ops: Ops, x: Tensor, w: Tensor, in_place: bool) -> Tensor:
    """Keeps its input and one value per row; the gradient may overwrite the incoming one."""
    ops.tape.op = "liger norm"
    tracked = ops.tracked(x, w)
    if tracked:
        ops.keep()
    rows = x.numel // x.shape[-1]
    out, deviation = ops.like(x), ops.new((rows,), 4)
    if tracked:
        trained, size, width = w.needs, x.shape[-1], w.width

        def back(g: Grads, kept: object = (ops.detached(x), deviation)) -> tuple[Tensor | None, ...]:
            partial = ops.new((ops.processors, size), 4)
            made = g[0] if in_place else ops.like(g[0])
            whole = ops.new((size,), 4)
            to_weight = ops.new((size,), width) if width != 4 else whole
            del partial
            return made, to_weight if trained else None

        ops.tie(out, "liger norm", (x, w), back)
    return out


def gate(ops: Ops, a: Tensor, b: Tensor, parts: bool = False) -> Tensor:
    """silu(a) * b; the backward writes both gradients over the saved inputs. ``parts`` of one result are copied
    first.
    """
    ops.tape.op = "liger gate"
    inputs = a, b
    if ops.tracked(a, b):
        ops.keep()
    if parts:
        a, b = ops.like(a), ops.like(b)
    out = ops.like(a)
    if ops.tracked(*inputs):

        def back(
            g: Grads, kept: tuple[Tensor, Tensor] = (ops.detached(a), ops.detached(b))
        ) -> tuple[Tensor | None, ...]:
            return tuple(reshaped(x, x.shape) for x in kept)

        ops.tie(out, "liger gate", inputs, back)
    return out


def rotated(ops: Ops, x: Tensor, cos: Tensor, part: bool = False) -> Tensor:
    """In place, forward and backward, if memory is in token order and ``x`` is no part of another tensor."""
    inside = ops.copy(x, x.shape) if x.order else x
    out = ops.like(inside) if part else ops.detached(inside)
    if ops.tracked(inside):

        def back(g: Grads, kept: Tensor = cos) -> tuple[Tensor | None, ...]:
            return (reshaped(g[0], g[0].shape),)

        ops.tie(out, "liger rotary", (inside,), back)
    return out


def loss(model: Model, hidden: Tensor) -> Tensor:
    """Compute logits in chunks; both gradients are computed in the forward and kept.

    If the head has the hidden states' dtype, Liger reuses one buffer for all chunks and accumulates the head's
    gradient in place. Under autocast each chunk has its own logits, and the head is cast for each: transposed
    it is no parameter, so autocast does not cache it; untransposed, for the gradient of the hidden states, it
    is one and stays cached.
    """
    ops, vocabulary = model.ops, model.shape.vocabulary
    weight = model.head.weight
    assert weight is not None
    rows, size = hidden.numel // hidden.shape[-1], hidden.shape[-1]
    parts = -(-vocabulary // size)
    chunk = min(rows, 1 << max(0, (-(-rows // parts) - 1).bit_length()))
    ops.tape.op = "fused loss"
    labels = ops.scratch(8 * rows)
    to_hidden = ops.new(hidden.shape, hidden.width)
    to_weight = ops.new(weight.shape, weight.width) if weight.needs else None
    losses = ops.new((rows,), 4)
    ops.ready()
    if hidden.width == weight.width and not ops.autocast:
        logits = ops.new((chunk, vocabulary), hidden.width)
        del logits
    else:
        for start in range(0, rows, chunk):
            _cast_chunk(ops, (min(chunk, rows - start), size), hidden.width, weight)
    result = ops.new((), 4)
    del losses, labels
    kept = [ops.detached(to_hidden), None if to_weight is None else ops.detached(to_weight)]

    def back(g: Grads, kept: list[Tensor | None] = kept) -> tuple[Tensor | None, ...]:
        made = tuple(kept)
        kept.clear()
        return made

    ops.tie(result, "fused loss", (hidden, weight), back)
    return result


def _cast_chunk(ops: Ops, shape: tuple[int, int], width: int, weight: Tensor) -> None:
    """Compute the logits of a chunk under autocast, their gradient in place, and its products with both operands."""
    turned = ops.new(weight.shape, 2) if weight.width != 2 else None
    some = ops.new(shape, 2) if width != 2 else None
    logits = ops.new((shape[0], weight.shape[0]), 2)
    del some, turned
    before, ops.grad = ops.grad, False
    ops.weight(weight)
    ops.grad = before
    some = ops.new(shape, 2)
    del some
    some = ops.new(shape, 2) if weight.needs and width != 2 else None
    del some, logits
