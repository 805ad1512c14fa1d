"""Qwen3-Next and Qwen3.5: a gated delta net in most layers, attention with an output gate in the others."""

from __future__ import annotations

from gpuready.fit.job.model_families import QWEN_SPLIT
from gpuready.fit.job.model_shape import ModelShape
from gpuready.fit.job.records import FitJob, FitUndecided, GpuCard
from gpuready.fit.tape.autograd import Tensor
from gpuready.fit.tape.decoder import AttentionOutput, DecoderModel, RotaryTables
from gpuready.fit.tape.delta_rule import copy_part, run_delta_rule
from gpuready.fit.tape.linear_layers import WeightMaker, apply_linear
from gpuready.fit.tape.model_parts import LayerWeights
from gpuready.fit.tape.rotary import apply_rotary
from gpuready.fit.tape.torch_ops import Grads, TorchOps


class DeltaNetModel(DecoderModel):
    """The model without the kernels of flash-linear-attention and causal-conv1d, as transformers falls back."""

    def __init__(self, ops: TorchOps, shape: ModelShape, job: FitJob, card: GpuCard, maker: WeightMaker) -> None:
        for applies, what in (
            (job.task == "generate", "generation"),
            (job.padded, "padding"),
            (job.precision == "fp32", "training in fp32"),
            (job.zero == 3, "ZeRO stage 3"),
            (job.loss == "liger", "Liger's kernels"),
            (job.tensor_parallel > 1, "tensor parallelism"),
        ):
            if applies:
                raise FitUndecided(f"{what} of the architecture {shape.family!r} is not known here; --trace plays it")
        super().__init__(ops, shape, job, card, maker)

    # ------------------------------------------------------------------------------------------- weights
    def add_attention_weights(self, layer: LayerWeights) -> None:
        if self.shape.mixers[layer.index] == "delta":
            self._add_delta_weights(layer)
            return
        s, make = self.shape, self.maker.new_linear
        q, kv = s.heads * s.head_size, s.kv_heads * s.head_size
        for name, size in (("q", 2 * q), ("k", kv), ("v", kv)):
            layer.linears[name] = make(f"{name}_proj", s.hidden, size, s.bias_qkv)
        layer.linears["o"] = make("o_proj", q, s.hidden, s.bias_out)
        for name in ("q", "k"):
            layer.norms[name] = self.maker.new_norm((s.head_size,)), None

    def _add_delta_weights(self, layer: LayerWeights) -> None:
        s, make, norm = self.shape, self.maker.new_linear, self.maker.new_norm
        keys, values, heads = _delta_sizes(s)
        layer.norms["conv"] = norm((2 * keys + values, 1, s.sizes["kernel"])), None
        if s.family in QWEN_SPLIT:
            for name, size in (("qkv", 2 * keys + values), ("z", values), ("b", heads), ("a", heads)):
                layer.linears[name] = make(f"in_proj_{name}", s.hidden, size, False)
        else:
            layer.linears["qkvz"] = make("in_proj_qkvz", s.hidden, 2 * keys + 2 * values, False)
            layer.linears["ba"] = make("in_proj_ba", s.hidden, 2 * heads, False)
        layer.norms["steps"] = norm((heads,)), norm((heads,))
        layer.norms["gated"] = norm((s.sizes["value_size"],)), None
        layer.linears["out"] = make("out_proj", values, s.hidden, False)

    # --------------------------------------------------------------------------------------------- parts
    def _self_attention(
        self, layer: LayerWeights, x: Tensor, rotary: RotaryTables, mask: Tensor | None
    ) -> AttentionOutput:
        if self.shape.mixers[layer.index] == "delta":
            return self._run_delta_net(layer, x), None
        return self._gated_attention(layer, x, rotary, mask)

    def _gated_attention(
        self, layer: LayerWeights, x: Tensor, rotary: RotaryTables, mask: Tensor | None
    ) -> AttentionOutput:
        ops, s = self.ops, self.shape
        batch, seq = x.shape[0], x.shape[1]
        whole = ops.split_heads_in_place(apply_linear(ops, x, layer.linears["q"]), s.heads, 2 * s.head_size)
        q, gate = ops.split(whole, [(batch, seq, s.heads, s.head_size)] * 2)
        gate = copy_part(ops, gate, (batch, seq, s.heads * s.head_size), "reshape")
        q = ops.swap_seq_and_heads(self.apply_norm(q, layer.norms["q"]))
        k = ops.split_heads_in_place(apply_linear(ops, x, layer.linears["k"]), s.kv_heads, s.head_size)
        k = ops.swap_seq_and_heads(self.apply_norm(k, layer.norms["k"]))
        v = ops.split_heads(apply_linear(ops, x, layer.linears["v"]), s.kv_heads, s.head_size)
        del whole
        assert rotary is not None
        q, k = apply_rotary(self, q, k, rotary, [])
        out, weights = self.attention_core(q, k, v, mask)
        out = ops.mul(out, ops.unary_op(gate, "sigmoid", keeps="result"))
        out = apply_linear(ops, out, layer.linears["o"])
        del q, k, v, gate
        return out, weights

    def _run_delta_net(self, layer: LayerWeights, x: Tensor) -> Tensor:
        ops, s = self.ops, self.shape
        batch, seq, _ = x.shape
        keys, values, heads = _delta_sizes(s)
        mixed, z, b, a, held = self._project_delta(layer, x)
        mixed = self._convolve(layer, mixed)
        q, k, v = ops.split(mixed, [(batch, seq, keys), (batch, seq, keys), (batch, seq, values)])
        q, k = (ops.view(part, (batch, seq, s.sizes["key_heads"], s.sizes["key_size"])) for part in (q, k))
        v = ops.view(v, (batch, seq, heads, s.sizes["value_size"]))
        held.clear()
        beta = ops.unary_op(b, "sigmoid", keeps="result")
        decay = self._decay(layer, a)
        if heads != s.sizes["key_heads"]:
            q, k = _repeat_heads(ops, q, heads), _repeat_heads(ops, k, heads)
        out = run_delta_rule(ops, q, k, v, decay, beta)
        rows = batch * seq * heads
        out = self._gated_norm(
            ops.view(out, (rows, s.sizes["value_size"])), ops.view(z, (rows, s.sizes["value_size"])), layer
        )
        done = apply_linear(ops, ops.view(out, (batch, seq, values)), layer.linears["out"])
        del mixed, z, b, a, q, k, v, beta, decay, out
        return done

    def _project_delta(self, layer: LayerWeights, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, list[Tensor]]:
        """Return what is convolved, the gate, both steps, and what lives until the convolution has run."""
        ops, s = self.ops, self.shape
        batch, seq, _ = x.shape
        keys, values, heads = _delta_sizes(s)
        if s.family in QWEN_SPLIT:
            made = [apply_linear(ops, x, layer.linears[name]) for name in ("qkv", "z", "b", "a")]
            return made[0], made[1], made[2], made[3], []
        whole, small = apply_linear(ops, x, layer.linears["qkvz"]), apply_linear(ops, x, layer.linears["ba"])
        parts = ops.split(whole, [(batch, seq, size) for size in (keys, keys, values, values)])
        b, a = ops.split(small, [(batch, seq, heads)] * 2)
        v, z, b, a = (copy_part(ops, one, one.shape, "reshape") for one in (parts[2], parts[3], b, a))
        q, k = (copy_part(ops, one, one.shape, "reshape") for one in parts[:2])
        mixed = ops.cat((q, k, v), (batch, seq, 2 * keys + values))
        return mixed, z, b, a, [whole, small, q, k, v]

    def _convolve(self, layer: LayerWeights, x: Tensor) -> Tensor:
        """A convolution of every channel with padding on both sides, of which the end is cut off."""
        ops, (weight, _) = self.ops, layer.norms["conv"]
        batch, seq, size = x.shape
        longer = (batch, seq + weight.shape[-1] - 1, size)
        y = convolve_channels(ops, x, weight, None, longer)
        return ops.unary_op(ops.slice(y, x.shape), "silu")

    def _decay(self, layer: LayerWeights, a: Tensor) -> Tensor:
        """``-exp(A_log) * softplus(a + dt_bias)`` in fp32."""
        ops, (bias, rate) = self.ops, layer.norms["steps"]
        assert rate is not None
        speed = ops.neg(ops.unary_op(ops.to_width(rate, 4), "exp", keeps="result"))
        return ops.mul(speed, ops.unary_op(ops.add(ops.to_width(a, 4), bias), "softplus"))

    def _gated_norm(self, x: Tensor, gate: Tensor, layer: LayerWeights) -> Tensor:
        ops, width, weight = self.ops, x.width, layer.norms["gated"][0]
        wide = ops.to_width(x, 4)
        variance = ops.mean(ops.unary_op(wide, "pow", temporaries=2))
        wide = ops.mul(wide, ops.unary_op(ops.scalar_op(variance, "add"), "rsqrt", keeps="result", temporaries=2))
        wide = ops.mul(weight, ops.to_width(wide, width))
        wide = ops.mul(wide, ops.unary_op(ops.to_width(gate, 4), "silu"))
        out = ops.to_width(wide, width)
        del wide, variance
        return out


def _delta_sizes(s: ModelShape) -> tuple[int, int, int]:
    """Return the size of all keys, that of all values, and the number of value heads."""
    heads = s.sizes["value_heads"]
    return s.sizes["key_heads"] * s.sizes["key_size"], heads * s.sizes["value_size"], heads


def _repeat_heads(ops: TorchOps, x: Tensor, heads: int) -> Tensor:
    ops.tape.op = "repeat heads"
    out = ops.new_empty((*x.shape[:2], heads, x.shape[3]), x.width)
    ops.tape.launch_kernel("spread", out.numel, 2 * out.numel * x.width)
    if ops.any_requires_grad(x):
        old = x.shape
        ops.add_node(out, "repeat heads", (x,), lambda g: (ops.new_empty(old, g[0].width),))
    return out


def convolve_channels(ops: TorchOps, x: Tensor, w: Tensor, b: Tensor | None, shape: tuple[int, ...]) -> Tensor:
    """A convolution of each channel by itself; keeps its input."""
    ops.tape.op = "convolution"
    out = ops.new_empty(shape, x.width)
    ops.tape.launch_kernel("spread", out.numel, 2 * out.numel * out.width)
    if ops.any_requires_grad(x, w, b):
        ops.count_saved()
        kept = ops.detach(x)
        needs = (x.requires_grad, w.requires_grad, b is not None and b.requires_grad)
        sizes = (w.shape, w.width, () if b is None else b.shape)

        def backward(g: Grads, kept: Tensor = kept) -> tuple[Tensor | None, ...]:
            ops.tape.launch_kernel("spread", g[0].numel, 4 * g[0].numel * g[0].width)
            to_input = ops.empty_like(kept) if needs[0] else None
            to_weight = ops.new_empty(sizes[0], sizes[1]) if needs[1] else None
            return to_input, to_weight, ops.new_empty(sizes[2], sizes[1]) if needs[2] else None

        del kept
        ops.add_node(out, "convolution", (x, w, b), backward)
    return out
