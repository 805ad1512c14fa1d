"""Mamba-2 as transformers runs it without the kernels of mamba-ssm: every chunk's pairs are written out in fp32."""

from __future__ import annotations

from gpuready.fit.job.records import FitUndecided
from gpuready.fit.tape.autograd import Tensor, view_gradient
from gpuready.fit.tape.decoder import DecoderModel
from gpuready.fit.tape.decoder_layer import LayerWeights
from gpuready.fit.tape.delta_net import convolve_channels
from gpuready.fit.tape.delta_rule import copy_part
from gpuready.fit.tape.linear_layers import apply_linear

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.fit.job.model_shape import ModelShape
    from gpuready.fit.job.records import FitJob, GpuCard
    from gpuready.fit.tape.decoder import RotaryTables
    from gpuready.fit.tape.linear_layers import WeightMaker
    from gpuready.fit.tape.torch_ops import Grads, TorchOps


class Mamba2Model(DecoderModel):
    """Layers of one norm and one mixer."""

    def __init__(self, ops: TorchOps, shape: ModelShape, job: FitJob, card: GpuCard, maker: WeightMaker) -> None:
        for applies, what in (
            (job.task == "generate", "generation"),
            (job.padded, "padding"),
            (job.zero == 3, "ZeRO stage 3"),
            (job.loss == "liger", "Liger's kernels"),
            (job.tensor_parallel > 1, "tensor parallelism"),
        ):
            if applies:
                raise FitUndecided(f"{what} of the architecture {shape.family!r} is not known here; --trace plays it")
        if job.method != "full" and (job.lora_targets in ("all", "all-linear") or "out_proj" in job.lora_targets):
            raise FitUndecided("peft adapts no out_proj of a Mamba model: name others, as in --lora-targets in_proj")
        super().__init__(ops, shape, job, card, maker)

    def new_layer(self, index: int) -> LayerWeights:
        s, layer, make, norm = self.shape, LayerWeights(index), self.maker.new_linear, self.maker.new_norm
        channels = s.inner + 2 * s.sizes["groups"] * s.sizes["state"]
        layer.norms["in"] = norm((s.hidden,)), None
        bias = norm((channels,)) if s.sizes["convolution_bias"] else None
        layer.norms["conv"] = norm((channels, 1, s.sizes["kernel"])), bias
        layer.linears["in"] = make("in_proj", s.hidden, s.inner + channels + s.heads, s.bias_mlp)
        layer.norms["steps"] = norm((s.heads,)), norm((s.heads,))
        layer.norms["skip"] = norm((s.heads,)), None
        layer.norms["gated"] = norm((s.inner,)), None
        layer.linears["out"] = make("out_proj", s.inner, s.hidden, s.bias_mlp)
        return layer

    def build_masks(self, batch: int, seq: int, width: int) -> dict[int, Tensor | None]:
        return {0: None}

    def run_layer(self, layer: LayerWeights, hidden: Tensor, rotary: RotaryTables, mask: Tensor | None) -> Tensor:
        ops = self.ops
        x = self.apply_norm(ops.to_width(hidden, self.width), layer.norms["in"])
        residual = ops.to_width(hidden, 4) if self.shape.scaled_residual else hidden
        x = self._mix(layer, x)
        return ops.add(residual, x)

    def _mix(self, layer: LayerWeights, x: Tensor) -> Tensor:
        ops, s = self.ops, self.shape
        batch, seq, _ = x.shape
        states = s.sizes["groups"] * s.sizes["state"]
        channels = s.inner + 2 * states
        whole = apply_linear(ops, x, layer.linears["in"])
        steps, rate = layer.norms["steps"]
        assert rate is not None
        speed = ops.neg(ops.unary_op(ops.to_width(rate, 4), "exp", keeps="result"))
        gate, mixed, dt = ops.split(whole, [(batch, seq, size) for size in (s.inner, channels, s.heads)])
        weight, bias = layer.norms["conv"]
        y = convolve_channels(ops, mixed, weight, bias, (batch, seq + s.sizes["kernel"] - 1, channels))
        mixed = ops.unary_op(ops.slice(y, mixed.shape), "silu")
        del y
        x, b, c = ops.split(mixed, [(batch, seq, size) for size in (s.inner, states, states)])
        dt = ops.unary_op(ops.unary_op(ops.add(dt, steps), "softplus"), "clamp", temporaries=1)
        out = _scan(ops, s, x, dt, speed, b, c, layer.norms["skip"][0])
        out = self._gated_norm(ops.view(out, (batch, seq, s.inner)), gate, layer)
        done = apply_linear(ops, ops.to_width(out, self.width), layer.linears["out"])
        del whole, speed, mixed, x, b, c, dt, gate, out
        return done

    def _gated_norm(self, x: Tensor, gate: Tensor, layer: LayerWeights) -> Tensor:
        ops = self.ops
        x = ops.mul(x, ops.unary_op(ops.to_width(gate, 4), "silu"))
        variance = ops.mean(ops.unary_op(x, "pow", temporaries=2))
        x = ops.mul(x, ops.unary_op(ops.scalar_op(variance, "add"), "rsqrt", keeps="result", temporaries=2))
        out = ops.mul(layer.norms["gated"][0], x)
        del variance
        return out

    def compute_logits(self, hidden: Tensor) -> Tensor:
        ops = self.ops
        return ops.to_width(apply_linear(ops, ops.to_width(hidden, self.width), self.head), 4)


def _scan(
    ops: TorchOps, s: ModelShape, x: Tensor, dt: Tensor, speed: Tensor, b: Tensor, c: Tensor, skip: Tensor
) -> Tensor:
    """Return (batch, seq, heads, size) values in fp32."""
    batch, seq, _ = x.shape
    heads, size, state, chunk = s.heads, s.head_size, s.sizes["state"], s.sizes["chunk"]
    padded = -(-seq // chunk) * chunk
    n = padded // chunk
    x = ops.to_width(ops.view(x, (batch, seq, heads, size)), 4)
    b, c = (_repeat_groups(ops, ops.to_width(one, 4), (batch, seq, heads, state)) for one in (b, c))
    rest = ops.mul(ops.view(skip, (heads, 1)), copy_part(ops, x, (batch, padded, heads, size), "pad"))
    x = ops.mul(x, ops.view(ops.to_width(dt, 4), (batch, seq, heads, 1)))
    a = ops.mul(speed, ops.to_width(dt, 4))
    x, a, b, c = [copy_part(ops, one, (batch, padded, *one.shape[2:]), "pad") for one in (x, a, b, c)]
    x = ops.view(x, (batch, n, chunk, heads, size))
    b, c = (ops.view(one, (batch, n, chunk, heads, state)) for one in (b, c))
    total = copy_part(ops, ops.view(a, (batch, heads, n, chunk)), (batch, heads, n, chunk), "cumsum")
    near = _mix_in_chunk(ops, x, a, b, c)
    decay = ops.unary_op(ops.add(ops.slice(total, (batch, heads, n, 1)), total), "exp", keeps="result")
    decayed = ops.mul(b, ops.view(decay, (batch, n, chunk, heads, 1)))
    states = _contract(ops, decayed, x, (batch, n, chunk, heads, size, state), (batch, n, heads, size, state))
    states, held = _carry_states(ops, total, states)
    out_decay = ops.unary_op(total, "exp", keeps="result")
    read = _multiply(ops, c, states, (batch, n, chunk, heads, size, state))
    far = ops.mul(_sum(ops, read, x.shape), ops.view(out_decay, (batch, n, chunk, heads, 1)))
    out = ops.add(near, far)
    out = ops.add(ops.view(out, (batch, padded, heads, size)), rest)
    if padded != seq:
        out = ops.slice(out, (batch, seq, heads, size))
    del a, b, c, total, near, far, read, decay, decayed, states, held, out_decay, rest
    return out


def _mix_in_chunk(ops: TorchOps, x: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """Every pair of tokens of a chunk, as attention without a softmax."""
    batch, n, chunk, heads, size = x.shape
    pairs = (batch, n, chunk, chunk, heads)
    decay = _segment_decay(ops, a, (batch, heads, n, chunk, chunk))
    scores = _contract(ops, c, b, (*pairs, b.shape[-1]), pairs)
    masked = _contract(ops, scores, ops.view(decay, pairs), pairs, pairs)
    out = _contract(ops, masked, x, (*pairs, size), x.shape)
    del decay, scores, masked
    return out


def _segment_decay(ops: TorchOps, a: Tensor, shape: tuple[int, ...]) -> Tensor:
    """``exp`` of the sums between all pairs of tokens."""
    ops.tape.op = "masked_fill"
    mask = ops.new_empty(shape[-2:], 1)
    first = ops.new_empty(shape, 4)
    if ops.any_requires_grad(a):
        old = a.shape

        def backward(g: Grads, kept: Tensor = mask) -> tuple[Tensor | None, ...]:
            spread = ops.empty_like(g[0])
            total = ops.new_empty(old, 4)
            del spread
            return (total,)

        ops.add_node(first, "masked_fill", (a,), backward)
    sums = copy_part(ops, first, shape, "cumsum")
    filled = copy_part(ops, sums, shape, "masked_fill")
    del first, sums
    return ops.unary_op(filled, "exp", keeps="result")


def _carry_states(ops: TorchOps, total: Tensor, states: Tensor) -> tuple[Tensor, list[Tensor]]:
    """Carry the state from chunk to chunk; return the states at the start of each, and what lives beside them."""
    batch, n, heads, size, state = states.shape
    first = ops.new_empty((batch, 1, heads, size, state), 4)
    states = ops.cat((first, states), (batch, n + 1, heads, size, state))
    ends = copy_part(ops, ops.slice(total, (batch, heads, n)), (batch, heads, n + 1), "pad")
    decay = _segment_decay(ops, ends, (batch, heads, n + 1, n + 1))
    new = _contract(ops, decay, states, (batch, n + 1, n + 1, heads, size, state), (batch, n + 1, heads, size, state))
    return ops.slice(new, (batch, n, heads, size, state)), [first, decay, states]


def _contract(ops: TorchOps, a: Tensor, b: Tensor, whole: tuple[int, ...], shape: tuple[int, ...]) -> Tensor:
    """``(a * b).sum(dim)``: the product of all pairs is written out."""
    return _sum(ops, _multiply(ops, a, b, whole), shape)


def _multiply(ops: TorchOps, a: Tensor, b: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A product of two tensors that are both broadcast."""
    ops.tape.op = "mul"
    out = ops.new_empty(shape, 4)
    ops.tape.launch_kernel("spread", out.numel, 4 * (a.numel + b.numel + out.numel))
    if ops.any_requires_grad(a, b):
        ops.count_saved()
        kept = ops.detach(a) if b.requires_grad else None, ops.detach(b) if a.requires_grad else None
        shapes, needs = (a.shape, b.shape), (a.requires_grad, b.requires_grad)

        def backward(g: Grads, kept: object = kept) -> tuple[Tensor | None, ...]:
            made: list[Tensor | None] = [None, None]
            for which in (1, 0):
                if needs[which]:
                    made[which] = ops.new_empty(shape, 4)
                    ops.tape.launch_kernel("spread", g[0].numel, 8 * g[0].numel)
            return tuple(ops.sum_to_shape_later(one, old) for one, old in zip(made, shapes, strict=True))

        ops.add_node(out, "mul", (a, b), backward)
    return out


def _sum(ops: TorchOps, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A sum over one dimension; its gradient is expanded without memory."""
    ops.tape.op = "sum"
    out = ops.new_empty(shape, 4)
    ops.tape.launch_kernel("rows", 4 * x.numel)
    if ops.any_requires_grad(x):
        old = x.shape
        ops.add_node(out, "sum", (x,), lambda g: (view_gradient(g[0], old),))
    return out


def _repeat_groups(ops: TorchOps, x: Tensor, shape: tuple[int, ...]) -> Tensor:
    ops.tape.op = "repeat groups"
    out = ops.new_empty(shape, 4)
    ops.tape.launch_kernel("spread", out.numel, 8 * out.numel)
    if ops.any_requires_grad(x):
        old = x.shape
        ops.add_node(out, "repeat groups", (x,), lambda g: (ops.new_empty(old, 4),))
    return out
