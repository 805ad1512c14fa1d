"""DeepSeek's attention: queries, keys and values come from low-rank projections; only a part of a head is rotated."""

from __future__ import annotations

from gpuready.fit.tape.autograd import Tensor, view_gradient
from gpuready.fit.tape.decoder import AttentionOutput, DecoderModel, RotaryTables
from gpuready.fit.tape.layer_weights import new_norm_weights
from gpuready.fit.tape.linear_layers import apply_linear
from gpuready.fit.tape.model_parts import LayerWeights
from gpuready.fit.tape.rotary import rotate_tensor
from gpuready.fit.tape.torch_ops import Grads, TorchOps


class LatentModel(DecoderModel):
    """DeepSeek V2 and V3."""

    def add_attention_weights(self, layer: LayerWeights) -> None:
        s, make = self.shape, self.maker.new_linear
        query_rank, rank, rotated, plain, value = s.latent
        queries = s.heads * (rotated + plain)
        if query_rank:
            layer.linears["q_a"] = make("q_a_proj", s.hidden, query_rank, s.bias_qkv)
            layer.norms["q_a"] = new_norm_weights(self, query_rank)
            layer.linears["q_b"] = make("q_b_proj", query_rank, queries, False)
        else:
            layer.linears["q"] = make("q_proj", s.hidden, queries, False)
        layer.linears["kv_a"] = make("kv_a_proj_with_mqa", s.hidden, rank + rotated, s.bias_qkv)
        layer.norms["kv_a"] = new_norm_weights(self, rank)
        layer.linears["kv_b"] = make("kv_b_proj", rank, s.heads * (plain + value), False)
        layer.linears["o"] = make("o_proj", s.heads * value, s.hidden, s.bias_out)

    def rotary_size(self) -> int:
        return self.shape.latent[2]

    def _self_attention(
        self, layer: LayerWeights, x: Tensor, rotary: RotaryTables, mask: Tensor | None
    ) -> AttentionOutput:
        ops, s = self.ops, self.shape
        _, rank, rotated, plain, _ = s.latent
        batch, seq = x.shape[0], x.shape[1]
        assert rotary is not None
        q = self._project_queries(layer, x)
        q_pass, q_rot = ops.split(q, [(batch, s.heads, seq, plain), (batch, s.heads, seq, rotated)])
        compressed = apply_linear(ops, x, layer.linears["kv_a"])
        latent, k_rot = ops.split(compressed, [(batch, seq, rank), (batch, seq, rotated)])
        latent = self.apply_norm(latent, layer.norms["kv_a"])
        k_rot = ops.view(k_rot, (batch, 1, seq, rotated))
        q_rot, k_rot = _rotate_parts(ops, s.rotary_kind, q_rot, k_rot, rotary)
        if self.cache is not None:
            latent, k_rot = self.cache.update_layer(
                layer.index, ops.view(latent, (batch, 1, seq, rank)), k_rot, self.total_length, 0
            )
        queries = ops.cat((q_pass, q_rot), (batch, s.heads, seq, plain + rotated))
        keys, values = self._expand_latent(layer, latent, k_rot)
        out, weights = self.attention_core(queries, keys, values, mask)
        out = apply_linear(ops, out, layer.linears["o"])
        del q, compressed, q_pass, q_rot, k_rot, latent
        return out, weights

    def _project_queries(self, layer: LayerWeights, x: Tensor) -> Tensor:
        ops, s = self.ops, self.shape
        if "q" in layer.linears:
            q = apply_linear(ops, x, layer.linears["q"])
        else:
            low = self.apply_norm(apply_linear(ops, x, layer.linears["q_a"]), layer.norms["q_a"])
            q = apply_linear(ops, low, layer.linears["q_b"])
            del low
        return ops.split_heads(q, s.heads, s.latent[2] + s.latent[3])

    def _expand_latent(self, layer: LayerWeights, latent: Tensor, k_rot: Tensor) -> tuple[Tensor, Tensor]:
        """Return keys and values of all heads; the keys are written into new memory in two parts."""
        ops, s = self.ops, self.shape
        _, rank, rotated, plain, value = s.latent
        batch, seq = k_rot.shape[0], k_rot.shape[2]
        flat = ops.view(latent, (batch, seq, rank)) if latent.shape != (batch, seq, rank) else latent
        whole = ops.split_heads(apply_linear(ops, flat, layer.linears["kv_b"]), s.heads, plain + value)
        k_pass, values = ops.split(whole, [(batch, s.heads, seq, plain), (batch, s.heads, seq, value)])
        keys = ops.new_empty((batch, s.heads, seq, plain + rotated), whole.width)
        keys.order = "heads"
        keys = _copy_into(ops, keys, k_pass)
        keys = _copy_into(ops, keys, k_rot)
        return keys, values


def _rotate_parts(
    ops: TorchOps, kind: str, q: Tensor, k: Tensor, rotary: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor]:
    if kind == "half":
        return rotate_tensor(ops, q, rotary), rotate_tensor(ops, k, rotary)
    if kind == "alternate":
        return rotate_alternate(ops, q, rotary), rotate_alternate(ops, k, rotary)
    return rotate_complex(ops, q, k, rotary[0])


def rotate_alternate(ops: TorchOps, x: Tensor, rotary: tuple[Tensor, Tensor], strided: bool = True) -> Tensor:
    """Rotate two halves by half tables: ``cat(a * cos - b * sin, b * cos + a * sin)``."""
    half = (*x.shape[:-1], x.shape[-1] // 2)
    cos, sin = (Tensor(table.memory, (*table.shape[:-1], half[-1]), table.width) for table in rotary)
    a, b = (ops.slice(x, half), ops.slice(x, half)) if strided else ops.split(x, [half, half])
    first = ops.add(ops.mul(a, cos), ops.mul(b, sin))
    second = ops.add(ops.mul(b, cos), ops.mul(a, sin))
    return ops.cat((first, second), x.shape)


def rotate_complex(ops: TorchOps, q: Tensor, k: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    """Rotate as complex numbers in fp32, and cast back."""
    pairs = [ops.to_width(x, 4) for x in (q, k)]
    made = []
    for x, pair in zip((q, k), pairs, strict=True):
        made.append(ops.to_width(ops.mul(pair, table), x.width))
        del pair
    del pairs
    return made[0], made[1]


def _copy_into(ops: TorchOps, whole: Tensor, part: Tensor) -> Tensor:
    """Copy into a slice in place; the backward copies the whole gradient, and the part's gradient out of it."""
    out = Tensor(whole.memory, whole.shape, whole.width)
    out.order = whole.order
    if ops.any_requires_grad(whole, part):
        shape, broadcast = part.shape, part.shape[1] != whole.shape[1]
        spread = (shape[0], whole.shape[1], *shape[2:])
        needs = whole.requires_grad

        def backward(g: Grads) -> tuple[Tensor | None, ...]:
            rest = ops.empty_like(g[0])
            taken = ops.new_empty(spread, g[0].width)
            taken.order = "heads"
            to_part = ops.new_empty(shape, g[0].width) if broadcast else view_gradient(taken, shape, False)
            del taken
            return (rest if needs else None), to_part

        ops.add_node(out, "copy", (whole, part), backward)
    return out
