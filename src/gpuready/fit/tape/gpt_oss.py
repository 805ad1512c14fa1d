"""gpt-oss: attention with a sink per head, and experts with biases and a clamped gate."""

from __future__ import annotations

from gpuready.fit.job.model_shape import ModelShape
from gpuready.fit.job.records import FitJob, GpuCard
from gpuready.fit.tape.attention import make_heads_contiguous, repeat_kv_heads, softmax
from gpuready.fit.tape.autograd import Tensor, view_gradient
from gpuready.fit.tape.decoder import AttentionOutput, DecoderModel, RotaryTables
from gpuready.fit.tape.experts import FoldedExperts, gather_rows, grouped_matmul, mask_rows, sum_expert_outputs
from gpuready.fit.tape.layer_weights import add_attention_weights
from gpuready.fit.tape.linear_layers import WeightMaker, apply_linear
from gpuready.fit.tape.model_parts import LayerWeights
from gpuready.fit.tape.routers import route_by_top_logits
from gpuready.fit.tape.torch_ops import Grads, TorchOps


class GptOssModel(DecoderModel):
    """gpt-oss 20B and 120B, in 16 bits."""

    def __init__(self, ops: TorchOps, shape: ModelShape, job: FitJob, card: GpuCard, maker: WeightMaker) -> None:
        super().__init__(ops, shape, job, card, maker)
        if job.attention == "sdpa":  # transformers has no SDPA for it, and takes eager
            self.job = job.replace(attention="eager")

    def add_attention_weights(self, layer: LayerWeights) -> None:
        add_attention_weights(self, layer)
        layer.norms["sinks"] = self.maker.new_norm((self.shape.heads,)), None

    def _self_attention(
        self, layer: LayerWeights, x: Tensor, rotary: RotaryTables, mask: Tensor | None
    ) -> AttentionOutput:
        ops = self.ops
        q, k, v = self._project_qkv(layer, x)
        assert rotary is not None
        q, k = (_rotate_halves(ops, one, rotary) for one in (q, k))
        if self.cache is not None:
            k, v = self.cache.update_layer(layer.index, k, v, self.total_length, self._layer_window(layer.index))
        if self.job.attention == "flash":
            out, weights = self.attention_core(q, k, v, mask)
        else:
            out, weights = _attend_with_sinks(ops, q, k, v, mask, layer.norms["sinks"][0])
        return apply_linear(ops, out, layer.linears["o"]), weights

    def _run_mlp(self, layer: LayerWeights, x: Tensor) -> Tensor:
        """Run router and experts; tokens are sorted by expert."""
        ops, s = self.ops, self.shape
        rows, k = x.numel // s.hidden, s.experts_per_token
        flat = ops.view(x, (rows, s.hidden))
        weights, _picks, logits = route_by_top_logits(self, layer, flat)
        count, stacks = rows * k, FoldedExperts(ops, layer)
        ids, order, index = (ops.new_scratch(8 * count) for _ in range(3))
        selected = gather_rows(ops, flat, count, index)
        chosen = gather_rows(ops, ops.view(weights, (count, 1)), count, order)
        mask = ops.new_empty((count, 1), 1)
        bias = gather_rows(ops, layer.moe["gate_up_bias"], count, ids)
        selected = mask_rows(ops, selected, mask, in_place=True)
        projected = _add_in_place(ops, grouped_matmul(ops, selected, stacks["gate_up"], 2 * s.expert_inner), bias)
        projected = mask_rows(ops, projected, mask)
        projected = _clamped_gate(ops, projected)
        bias = gather_rows(ops, layer.moe["down_bias"], count, ids)
        projected = _add_in_place(ops, grouped_matmul(ops, projected, stacks["down"], s.hidden), bias)
        projected = mask_rows(ops, projected, mask)
        weighted = ops.mul(projected, chosen)
        inverse = ops.new_scratch(8 * count)
        weighted = gather_rows(ops, weighted, count, inverse)
        summed = sum_expert_outputs(ops, weighted, rows, k)
        out = ops.view(ops.to_width(summed, x.width), x.shape)
        del logits, bias, selected
        return out


def _add_in_place(ops: TorchOps, x: Tensor, bias: Tensor) -> Tensor:
    """Add to a result in place; both get the gradient itself."""
    out = ops.detach(x)
    if ops.any_requires_grad(x, bias):

        def backward(g: Grads) -> tuple[Tensor | None, ...]:
            return g[0], view_gradient(g[0], g[0].shape)

        ops.add_node(out, "add", (x, bias), backward)
    return out


def _clamped_gate(ops: TorchOps, both: Tensor) -> Tensor:
    """``(up + 1) * gate * sigmoid(alpha * gate)``, both clamped first."""
    half = (both.shape[0], both.shape[1] // 2)
    gate, up = ops.slice(both, half), ops.slice(both, half)
    gate = ops.unary_op(gate, "clamp", temporaries=1)
    up = ops.unary_op(up, "clamp", temporaries=1)
    glu = ops.mul(gate, ops.unary_op(ops.scalar_op(gate), "sigmoid", keeps="result"))
    return ops.mul(ops.scalar_op(up, "add"), glu)


def _attend_with_sinks(
    ops: TorchOps, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, sinks: Tensor
) -> AttentionOutput:
    """Eager attention whose softmax has one more column: the sink of the head."""
    batch, heads, seq, size = q.shape
    keys = k.shape[2]
    key_states, value_states = repeat_kv_heads(ops, k, heads), repeat_kv_heads(ops, v, heads)
    dense, turned = make_heads_contiguous(ops, q), make_heads_contiguous(ops, key_states)
    scores = ops.matmul(dense, turned, (batch, heads, seq, keys))
    del dense, turned
    scores = ops.scalar_op(scores)
    if mask is not None:
        scores = ops.add(scores, mask)
    combined = _append_sinks(ops, scores, sinks)
    combined = _subtract_maximum(ops, combined)
    probabilities = softmax(ops, combined, combined.width)
    weights = ops.slice(probabilities, (batch, heads, seq, keys))
    out = ops.matmul(weights, make_heads_contiguous(ops, value_states), (batch, heads, seq, size))
    done = ops.merge_heads(out)
    del out, scores, combined, probabilities
    return done, ops.detach(weights)


def _append_sinks(ops: TorchOps, scores: Tensor, sinks: Tensor) -> Tensor:
    """Concatenate the sinks, expanded over the rows; their gradient is summed."""
    ops.tape.op = "cat"
    batch, heads, seq, keys = scores.shape
    out = ops.new_empty((batch, heads, seq, keys + 1), scores.width)
    out.order = "heads"
    if ops.any_requires_grad(scores, sinks):
        old, needs = scores.shape, sinks.requires_grad

        def backward(g: Grads) -> tuple[Tensor | None, ...]:
            total = ops.new_empty((heads,), g[0].width) if needs else None
            return view_gradient(g[0], old), total

        ops.add_node(out, "cat", (scores, sinks), backward)
    return out


def _subtract_maximum(ops: TorchOps, x: Tensor) -> Tensor:
    """Subtract each row's maximum; the gradient of the maximum is a full tensor of zeros."""
    ops.tape.op = "max"
    rows = (*x.shape[:-1], 1)
    values, places = ops.new_empty(rows, x.width), ops.new_empty(rows, 8)
    out = ops.empty_like(x)
    del values
    if ops.any_requires_grad(x):
        ops.count_saved()

        def backward(g: Grads, kept: Tensor = places) -> tuple[Tensor | None, ...]:
            negative = ops.empty_like(g[0])
            total = ops.new_empty(rows, g[0].width)
            del negative
            spread = ops.empty_like(g[0])
            del total
            whole = ops.empty_like(g[0])
            del spread
            return (whole,)

        ops.add_node(out, "max", (x,), backward)
    return out


def _rotate_halves(ops: TorchOps, x: Tensor, rotary: tuple[Tensor, Tensor]) -> Tensor:
    """Rotate two halves by half tables: ``cat(a * cos - b * sin, b * cos + a * sin)``."""
    half = (*x.shape[:-1], x.shape[-1] // 2)
    cos, sin = (Tensor(table.memory, (*table.shape[:-1], half[-1]), table.width) for table in rotary)
    a, b = ops.split(x, [half, half])
    first = ops.add(ops.mul(a, cos), ops.mul(b, sin))
    second = ops.add(ops.mul(b, cos), ops.mul(a, sin))
    return ops.cat((first, second), x.shape)
