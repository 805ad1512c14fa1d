"""Falcon: one weight for queries, keys and values, attention beside the MLP, and keys that are broadcast to all heads."""

from __future__ import annotations

from gpuready.fit.tape.attention import make_heads_contiguous, repeat_kv_heads, softmax
from gpuready.fit.tape.autograd import Tensor
from gpuready.fit.tape.decoder import DecoderModel
from gpuready.fit.tape.linear_layers import apply_linear

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.fit.job.model_shape import ModelShape
    from gpuready.fit.job.records import FitJob, GpuCard
    from gpuready.fit.tape.decoder import AttentionOutput, RotaryTables
    from gpuready.fit.tape.decoder_layer import LayerWeights
    from gpuready.fit.tape.linear_layers import WeightMaker
    from gpuready.fit.tape.torch_ops import Grads, TorchOps


class FalconModel(DecoderModel):
    """Falcon 7B (one key head), 40B and 180B (groups), and 1B (all heads)."""

    def __init__(self, ops: TorchOps, shape: ModelShape, job: FitJob, card: GpuCard, maker: WeightMaker) -> None:
        maker.has_own_linears = True  # transformers quantises layers of the class Linear, and FalconLinear is another
        super().__init__(ops, shape, job, card, maker)

    def run_layer(self, layer: LayerWeights, hidden: Tensor, rotary: RotaryTables, mask: Tensor | None) -> Tensor:
        ops, two = self.ops, self.shape.parallel == "falcon"
        x = self.apply_norm(hidden, layer.norms["in"])
        other = self.apply_norm(hidden, layer.norms["mid"]) if two else x
        attended, weights = self.self_attention(layer, x, rotary, mask)
        mlp = self.run_mlp(layer, other)
        mlp = _add_in_place(ops, mlp, attended)
        out = ops.add(hidden, ops.dropout(mlp, self.shape.dropout_hidden if self.training else 0.0))
        del x, other, attended, weights
        return out

    def _project_qkv(self, layer: LayerWeights, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ops, s = self.ops, self.shape
        fused = apply_linear(ops, x, layer.linears["qkv"])
        batch, seq = x.shape[0], x.shape[1]
        every = ops.split_heads_in_place(fused, s.heads + 2 * s.kv_heads, s.head_size)
        whole = (batch, seq, s.heads, s.head_size)
        q = ops.slice(every, whole)
        if s.packed == "falcon" and s.kv_heads != 1:
            k, v = ops.slice(every, whole), ops.slice(every, whole)
        else:
            few = (batch, seq, s.kv_heads, s.head_size)
            k, v = _copy_part(ops, every, few), _copy_part(ops, every, few)
        if s.packed == "falcon groups":
            q, k, v = ops.copy_contiguous(q, whole), _spread_groups(ops, k, s.heads), _spread_groups(ops, v, s.heads)
        return ops.swap_seq_and_heads(q), ops.swap_seq_and_heads(k), ops.swap_seq_and_heads(v)

    def attention_core(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> AttentionOutput:
        if self.job.attention == "eager":
            return _eager_attention(self.ops, q, k, v, mask)
        return super().attention_core(q, k, v, mask)

    def broadcasts_keys(self, q: Tensor, k: Tensor) -> bool:
        return k.shape[1] != q.shape[1]  # Falcon does not declare its groups to torch


def _copy_part(ops: TorchOps, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Select by a list of indices: a copy, whose gradient is a full tensor of zeros with this part."""
    ops.tape.op = "index"
    out = ops.new_empty(shape, x.width)
    if ops.any_requires_grad(x):
        old, width = x.shape, x.width
        ops.add_node(out, "index", (x,), lambda g: (ops.new_empty(old, width),))
    return out


def _spread_groups(ops: TorchOps, x: Tensor, heads: int) -> Tensor:
    """Copy each key or value head to the heads of its group, in token order."""
    ops.tape.op = "repeat heads"
    out = ops.new_empty((*x.shape[:2], heads, x.shape[3]), x.width)
    if ops.any_requires_grad(x):
        old = x.shape
        ops.add_node(out, "repeat heads", (x,), lambda g: (ops.new_empty(old, g[0].width),))
    return out


def _add_in_place(ops: TorchOps, x: Tensor, other: Tensor) -> Tensor:
    out = ops.detach(x)
    if ops.any_requires_grad(x, other):

        def backward(g: Grads) -> tuple[Tensor | None, ...]:
            return g[0], g[0]

        ops.add_node(out, "add", (x, other), backward)
    return out


def _eager_attention(ops: TorchOps, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> AttentionOutput:
    """Falcon's own attention: the scores are divided in place, and the softmax keeps the dtype."""
    batch, heads, seq, size = q.shape
    scores = ops.matmul(
        make_heads_contiguous(ops, q),
        make_heads_contiguous(ops, repeat_kv_heads(ops, k, heads, always=True)),
        (batch, heads, seq, k.shape[2]),
    )
    scores = _scale_in_place(ops, scores)
    width = 4 if ops.autocast else scores.width  # that of the layer's input, which autocast's norm returns in fp32
    scores = softmax(ops, scores if mask is None else ops.add(scores, mask), width)
    values = make_heads_contiguous(ops, repeat_kv_heads(ops, v, heads, always=True))
    out = ops.matmul(scores, values, (batch, heads, seq, size))
    del values
    done = ops.merge_heads(out)
    del out
    return done, scores


def _scale_in_place(ops: TorchOps, x: Tensor) -> Tensor:
    out = ops.detach(x)
    if ops.any_requires_grad(x):
        ops.add_node(out, "div", (x,), lambda g: (ops.empty_like(g[0]),))
    return out
