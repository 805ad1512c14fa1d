"""Llama 4: complex rotation before the heads are turned, and experts that all see every token."""

from __future__ import annotations

from gpuready.fit.tape.autograd import Tensor
from gpuready.fit.tape.decoder import AttentionOutput, DecoderModel, RotaryTables
from gpuready.fit.tape.linear_layers import apply_linear
from gpuready.fit.tape.model_parts import LayerWeights
from gpuready.fit.tape.norms import unit_norm
from gpuready.fit.tape.routers import scatter_top_logits
from gpuready.fit.tape.torch_ops import Grads, TorchOps


class Llama4Model(DecoderModel):
    """The language model of Llama 4."""

    widens_softmax = False

    def run_layer(self, layer: LayerWeights, hidden: Tensor, rotary: RotaryTables, mask: Tensor | None) -> Tensor:
        ops = self.ops
        attended, weights = self.self_attention(layer, self.apply_norm(hidden, layer.norms["in"]), rotary, mask)
        hidden = ops.add(hidden, attended)
        x = self.apply_norm(hidden, layer.norms["mid"])
        held: list[Tensor] = []
        x = self._run_dense_experts(layer, x, held) if layer.moe else self.run_mlp(layer, x)
        out = ops.add(hidden, x)
        del attended, weights, held  # variables of the layer
        return out

    def _self_attention(
        self, layer: LayerWeights, x: Tensor, rotary: RotaryTables, mask: Tensor | None
    ) -> AttentionOutput:
        ops, s = self.ops, self.shape
        q = ops.split_heads_in_place(apply_linear(ops, x, layer.linears["q"]), s.heads, s.head_size)
        k = ops.split_heads_in_place(apply_linear(ops, x, layer.linears["k"]), s.kv_heads, s.head_size)
        v = ops.split_heads(apply_linear(ops, x, layer.linears["v"]), s.kv_heads, s.head_size)
        scales = None
        if s.is_rotary_layer(layer.index):
            assert rotary is not None
            q, k = _rotate_both(ops, q, k, rotary[0])
            if s.unit_qk_norm:
                q = unit_norm(ops, q)
                k = unit_norm(ops, k)
        elif s.tempered:
            scales = ops.new_empty((1, q.shape[1], 1, 1), 4)
            q = ops.to_width(ops.mul(q, scales), q.width)
        q, k = ops.swap_seq_and_heads(q), ops.swap_seq_and_heads(k)
        if self.cache is not None:
            k, v = self.cache.update_layer(layer.index, k, v, self.total_length, self._layer_window(layer.index))
        out, weights = self.attention_core(q, k, v, mask)
        out = apply_linear(ops, out, layer.linears["o"])
        del scales
        return out, weights

    def _run_dense_experts(self, layer: LayerWeights, x: Tensor, held: list[Tensor]) -> Tensor:
        """Run every expert on every token, scaled by its score; ``held`` gets what the layer keeps in variables."""
        ops, s = self.ops, self.shape
        rows = x.numel // s.hidden
        flat = ops.view(x, (rows, s.hidden))
        logits = apply_linear(ops, flat, layer.linears["router"])
        scores = scatter_top_logits(ops, logits, s.experts_per_token)
        scores = ops.to_width(ops.unary_op(ops.to_width(scores, 4), "sigmoid", keeps="result"), scores.width)
        routed = _repeat_rows(ops, flat, s.experts)
        turned = ops.copy_contiguous(scores, (s.experts * rows, 1))
        routed = ops.mul(routed, turned)
        del turned
        both = ops.matmul(
            ops.view(routed, (s.experts, rows, s.hidden)), layer.moe["gate_up"], (s.experts, rows, 2 * s.expert_inner)
        )
        gate, up = ops.split(both, [(s.experts, rows, s.expert_inner)] * 2)
        inner = ops.mul(up, self.apply_activation(gate))
        result = ops.matmul(inner, layer.moe["down"], (s.experts, rows, s.hidden))
        del both, gate, up, inner
        shared = self.run_gated_mlp(flat, *(layer.linears[f"shared_{n}"] for n in ("gate", "up", "down")))
        out = _add_sum_in_place(ops, shared, result)
        held += [logits, scores]
        return ops.view(out, x.shape)


def _rotate_both(ops: TorchOps, q: Tensor, k: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """Rotate queries and keys as complex numbers; both results are there before either is cast back."""
    width = q.width
    wide_q, wide_k = ops.to_width(q, 4), ops.to_width(k, 4)
    wide_q, wide_k = _keep_order(ops, wide_q, table), _keep_order(ops, wide_k, table)
    return ops.to_width(wide_q, width), ops.to_width(wide_k, width)


def _keep_order(ops: TorchOps, x: Tensor, table: Tensor) -> Tensor:
    return ops.mul(x, Tensor(table.memory, (table.shape[0], 1, table.shape[1]), 4))


def _repeat_rows(ops: TorchOps, x: Tensor, times: int) -> Tensor:
    ops.tape.op = "repeat"
    out = ops.new_empty((times * x.shape[0], x.shape[1]), x.width)
    if ops.any_requires_grad(x):
        old = x.shape
        ops.add_node(out, "repeat", (x,), lambda g: (ops.new_empty(old, g[0].width),))
    return out


def _add_sum_in_place(ops: TorchOps, x: Tensor, parts: Tensor) -> Tensor:
    """Add the sum over the experts in place; its gradient is expanded as a view."""
    total = ops.new_empty(parts.shape[1:], parts.width)
    del total
    out = ops.detach(x)
    if ops.any_requires_grad(x, parts):
        shape = parts.shape

        def backward(g: Grads) -> tuple[Tensor | None, ...]:
            expanded = Tensor(g[0].memory, shape, g[0].width)
            expanded.view = True
            return g[0], expanded

        ops.add_node(out, "add", (x, parts), backward)
    return out
