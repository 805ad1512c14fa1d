"""Rotary embedding: the cosines and sines of a pass, and their application to queries and keys."""

from gpuready.fit.tape import liger
from gpuready.fit.tape.autograd import Tensor
from gpuready.fit.tape.model_parts import ModelParts
from gpuready.fit.tape.torch_ops import TorchOps

RotaryPair = tuple[Tensor, Tensor]


def rotary_tables(model: ModelParts, seq: int, width: int) -> RotaryPair | None:
    """Return the cosines and sines of every position."""
    ops, size = model.ops, model.rotary_size()
    if not size:
        return None
    ops.tape.op = "rotary"
    places = ops.new_empty((seq,), 4)
    freqs = ops.new_empty((seq, size // 2), 4)
    ops.ensure_workspace()
    both = ops.new_empty((seq, size), 4)
    cos = ops.empty_like(both)
    cos = ops.empty_like(both)
    sin = ops.empty_like(both)
    sin = ops.empty_like(both)
    if width != 4:
        return ops.empty_like(cos, width), ops.empty_like(sin, width)
    del places, freqs, both
    return cos, sin


def apply_rotary(model: ModelParts, q: Tensor, k: Tensor, rotary: RotaryPair) -> RotaryPair:
    """Rotate queries and keys; if only a part is rotated, join it with the rest."""
    ops, size, rotated_size = model.ops, q.shape[-1], rotary[0].shape[-1]
    joins_each = model.shape.packed == "phi3"  # phi3 concatenates even an empty rest
    if model.job.loss == "liger":
        return liger.liger_rotary(ops, q, rotary[0], joins_each), liger.liger_rotary(ops, k, rotary[0], joins_each)
    if not joins_each:
        return rotate_tensor(ops, q, rotary), rotate_tensor(ops, k, rotary)
    parts = []
    for x in (q, k):  # a full slice is the tensor itself; the gradient of an empty one is a full tensor of zeros
        first = ops.slice(x, (*x.shape[:-1], rotated_size)) if rotated_size != size else x
        parts.append((first, ops.slice(x, (*x.shape[:-1], size - rotated_size))))
    shapes = q.shape, k.shape
    q = ops.cat((rotate_tensor(ops, parts[0][0], rotary), parts[0][1]), shapes[0])
    return q, ops.cat((rotate_tensor(ops, parts[1][0], rotary), parts[1][1]), shapes[1])


def rotate_tensor(ops: TorchOps, x: Tensor, rotary: RotaryPair) -> Tensor:
    cos, sin = rotary
    return ops.add(ops.mul(x, cos), ops.mul(rotate_half(ops, x), sin))


def rotate_half(ops: TorchOps, x: Tensor) -> Tensor:
    half = (*x.shape[:-1], x.shape[-1] // 2)
    first, second = ops.slice(x, half), ops.slice(x, half)
    return ops.cat((ops.neg(second), first), x.shape)
