"""Liger's kernels, which replace norms, gate, rotary embedding and loss."""

from gpuready.fit.tape.autograd import Tensor, view_gradient
from gpuready.fit.tape.model_parts import ModelParts
from gpuready.fit.tape.torch_ops import Grads, TorchOps


def liger_norm(ops: TorchOps, x: Tensor, w: Tensor, in_place: bool) -> Tensor:
    """Keeps its input and one value per row; the gradient may overwrite the incoming one."""
    ops.tape.op = "liger norm"
    tracked = ops.any_requires_grad(x, w)
    if tracked:
        ops.count_saved()
    rows = x.numel // x.shape[-1]
    out, deviation = ops.empty_like(x), ops.new_empty((rows,), 4)
    ops.tape.launch_kernel("move", 2 * x.numel * x.width)
    if tracked:
        trained, size, width = w.requires_grad, x.shape[-1], w.width

        def backward(g: Grads, kept: object = (ops.detach(x), deviation)) -> tuple[Tensor | None, ...]:
            partial = ops.new_empty((ops.processors, size), 4)
            ops.tape.launch_kernel("move", 3 * g[0].numel * g[0].width)
            made = g[0] if in_place else ops.empty_like(g[0])
            whole = ops.new_empty((size,), 4)
            to_weight = ops.new_empty((size,), width) if width != 4 else whole
            del partial
            return made, to_weight if trained else None

        ops.add_node(out, "liger norm", (x, w), backward)
    return out


def liger_gate(ops: TorchOps, a: Tensor, b: Tensor, parts: bool = False) -> Tensor:
    """silu(a) * b; the backward writes both gradients over the saved inputs. ``parts`` of one result are copied
    first.
    """
    ops.tape.op = "liger gate"
    inputs = a, b
    if ops.any_requires_grad(a, b):
        ops.count_saved()
    if parts:
        a, b = ops.empty_like(a), ops.empty_like(b)
        ops.tape.launch_kernel("spread", 2 * a.numel, 4 * a.numel * a.width)
    out = ops.empty_like(a)
    ops.tape.launch_kernel("move", 3 * a.numel * a.width)
    if ops.any_requires_grad(*inputs):

        def backward(
            g: Grads, kept: tuple[Tensor, Tensor] = (ops.detach(a), ops.detach(b))
        ) -> tuple[Tensor | None, ...]:
            ops.tape.launch_kernel("move", 5 * g[0].numel * g[0].width)
            return tuple(view_gradient(x, x.shape) for x in kept)

        ops.add_node(out, "liger gate", inputs, backward)
    return out


def liger_rotary(ops: TorchOps, x: Tensor, cos: Tensor, part: bool = False) -> Tensor:
    """In place, forward and backward, if memory is in token order and ``x`` is no part of another tensor."""
    inside = ops.copy_contiguous(x, x.shape) if x.order else x
    out = ops.empty_like(inside) if part else ops.detach(inside)
    ops.tape.launch_kernel("move", 2 * x.numel * x.width)
    if ops.any_requires_grad(inside):

        def backward(g: Grads, kept: Tensor = cos) -> tuple[Tensor | None, ...]:
            ops.tape.launch_kernel("move", 2 * g[0].numel * g[0].width)
            return (view_gradient(g[0], g[0].shape),)

        ops.add_node(out, "liger rotary", (inside,), backward)
    return out


def liger_fused_loss(model: ModelParts, hidden: Tensor) -> Tensor:
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
    labels = ops.new_scratch(8 * rows)
    to_hidden = ops.new_empty(hidden.shape, hidden.width)
    to_weight = ops.new_empty(weight.shape, weight.width) if weight.requires_grad else None
    losses = ops.new_empty((rows,), 4)
    ops.ensure_workspace()
    for start in range(0, rows, chunk):
        _launch_chunk(
            ops, min(chunk, rows - start), size, vocabulary, ops.autocast or weight.width, to_weight is not None
        )
    if hidden.width == weight.width and not ops.autocast:
        logits = ops.new_empty((chunk, vocabulary), hidden.width)
        del logits
    else:
        for start in range(0, rows, chunk):
            _cast_chunk(ops, (min(chunk, rows - start), size), hidden.width, weight)
    result = ops.new_empty((), 4)
    del losses, labels
    kept = [ops.detach(to_hidden), None if to_weight is None else ops.detach(to_weight)]

    def backward(g: Grads, kept: list[Tensor | None] = kept) -> tuple[Tensor | None, ...]:
        made = tuple(kept)
        kept.clear()
        return made

    ops.add_node(result, "fused loss", (hidden, weight), backward)
    return result


def _launch_chunk(ops: TorchOps, rows: int, size: int, vocabulary: int, width: int, trains_head: bool) -> None:
    """Record the kernels of a chunk: its logits, the loss with its gradient in place, and the products with it."""
    ops.tape.launch_matmul(rows, vocabulary, size, width, 1, vocabulary, size)
    ops.tape.launch_kernel("move", 4 * rows * vocabulary * width)
    ops.tape.launch_matmul(rows, size, vocabulary, width, 1, vocabulary, size)
    if trains_head:
        ops.tape.launch_matmul(vocabulary, size, rows, width, 1, vocabulary, size)


def _cast_chunk(ops: TorchOps, shape: tuple[int, int], width: int, weight: Tensor) -> None:
    """Compute the logits of a chunk under autocast, their gradient in place, and its products with both operands."""
    turned = ops.new_empty(weight.shape, 2) if weight.width != 2 else None
    some = ops.new_empty(shape, 2) if width != 2 else None
    logits = ops.new_empty((shape[0], weight.shape[0]), 2)
    del some, turned
    before, ops.grad_enabled = ops.grad_enabled, False
    ops.cast_weight(weight)
    ops.grad_enabled = before
    some = ops.new_empty(shape, 2)
    del some
    some = ops.new_empty(shape, 2) if weight.requires_grad and width != 2 else None
    del some, logits
