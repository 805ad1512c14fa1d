"""Rotary embedding: the cosines and sines of a pass, and their application to queries and keys."""

from __future__ import annotations

from gpuready.fit import liger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.fit.layers import Model
    from gpuready.fit.ops import Ops
    from gpuready.fit.tensor import Tensor

    Rotary = tuple[Tensor, Tensor]


def rotate(model: Model, seq: int, width: int) -> Rotary | None:
    """Return the cosines and sines of every position."""
    ops, size = model.ops, int(model.shape.head_size * model.shape.rotary)
    if not size:
        return None
    ops.tape.op = "rotary"
    places = ops.new((seq,), 4)
    freqs = ops.new((seq, size // 2), 4)
    ops.ready()
    both = ops.new((seq, size), 4)
    cos = ops.like(both)
    cos = ops.like(both)
    sin = ops.like(both)
    sin = ops.like(both)
    if width != 4:
        return ops.like(cos, width), ops.like(sin, width)
    del places, freqs, both
    return cos, sin


def rotated(model: Model, q: Tensor, k: Tensor, rotary: Rotary, named: list[object]) -> Rotary:
    """Rotate queries and keys; if only a part is rotated, join it with the rest.

    ``kept_alive`` receives what the attention holds in variables while it runs.
    """
    ops, size, turned = model.ops, q.shape[-1], rotary[0].shape[-1]
    joins_each = model.shape.packed == "phi3"  # phi3 concatenates even an empty rest
    if model.job.loss == "liger":
        return liger.rotated(ops, q, rotary[0], joins_each), liger.rotated(ops, k, rotary[0], joins_each)
    if turned == size and not joins_each:
        return _turned(ops, q, rotary), _turned(ops, k, rotary)
    parts = []
    for x in (
        q,
        k,
    ):  # a full slice is the tensor itself; the gradient of an empty one is a full tensor of zeros
        first = ops.slice(x, (*x.shape[:-1], turned)) if turned != size else x
        parts.append((first, ops.slice(x, (*x.shape[:-1], size - turned))))
    shapes = q.shape, k.shape
    if joins_each:
        q = ops.cat((_turned(ops, parts[0][0], rotary), parts[0][1]), shapes[0])
        return q, ops.cat((_turned(ops, parts[1][0], rotary), parts[1][1]), shapes[1])
    done = [_turned(ops, rot, rotary) for rot, _ in parts]
    if model.shape.parallel == "phi":
        named += [*done, *parts]
    q = ops.cat((done.pop(0), parts[0][1]), shapes[0])
    return q, ops.cat((done.pop(), parts[1][1]), shapes[1])


def _turned(ops: Ops, x: Tensor, rotary: Rotary) -> Tensor:
    cos, sin = rotary
    return ops.add(ops.mul(x, cos), ops.mul(_half_turned(ops, x), sin))


def _half_turned(ops: Ops, x: Tensor) -> Tensor:
    half = (*x.shape[:-1], x.shape[-1] // 2)
    first, second = ops.slice(x, half), ops.slice(x, half)
    return ops.cat((ops.neg(second), first), x.shape)
