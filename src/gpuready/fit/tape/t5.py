"""T5, mT5 and UMT5: relative positions as a learned bias of the attention scores, norms without a mean, and no biases."""

from __future__ import annotations

from gpuready.fit.job.records import FitUndecided
from gpuready.fit.tape.attention import AttentionQuery, eager_attention, pick_attention_kernel, run_attention
from gpuready.fit.tape.autograd import ACCUMULATE_SEQ, GraphNode, Tensor
from gpuready.fit.tape.decoder_layer import LayerWeights
from gpuready.fit.tape.encoder_decoder import hidden_and_states
from gpuready.fit.tape.encoders import EncoderModel
from gpuready.fit.tape.linear_layers import LinearLayer, apply_linear

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.fit.job.model_shape import ModelShape
    from gpuready.fit.job.records import FitJob, GpuCard
    from gpuready.fit.tape.autograd import Backward
    from gpuready.fit.tape.decoder import AttentionOutput
    from gpuready.fit.tape.encoders import LayerRunner
    from gpuready.fit.tape.key_value_cache import KeyValueCache
    from gpuready.fit.tape.linear_layers import WeightMaker
    from gpuready.fit.tape.torch_ops import Grads, TorchOps

SELF_NAMES, CROSS_NAMES = ("q", "k", "v", "o"), ("cq", "ck", "cv", "co")


class T5Model(EncoderModel):
    """An encoder and a decoder; the first layer of each has the bias (in UMT5 every layer)."""

    widens_softmax = False

    def __init__(self, ops: TorchOps, shape: ModelShape, job: FitJob, card: GpuCard, maker: WeightMaker) -> None:
        for applies, what in (
            (job.checkpointing == "reentrant", "reentrant checkpointing"),
            ("fp16" in (job.precision.removeprefix("amp-"), job.autocast), "fp16"),
            (
                job.attention == "eager" and bool(job.autocast or job.precision.startswith("amp")),
                "eager attention under autocast",
            ),
            (bool(job.quant), "a quantised base"),
            (job.padded, "padding"),
            (job.attention == "flash", "the flash-attn package"),
        ):
            if applies:
                raise FitUndecided(f"{what} of the architecture {shape.family!r} is not known here; --trace plays it")
        super().__init__(ops, shape, job, card, maker)

    # ------------------------------------------------------------------------------------------- weights
    def create_tables(self) -> None:
        self.token_table = self.new_outer(self.shape.vocabulary, self.shape.hidden)
        self.encoder_norm = self.new_outer(self.shape.hidden), None

    def create_head(self) -> None:
        s = self.shape
        self.norm = self.new_outer(s.hidden), None
        self.head = LinearLayer(self.token_table if s.tied else self.new_outer(s.vocabulary, s.hidden))

    def new_layer(self, index: int) -> LayerWeights:
        s, layer, make = self.shape, LayerWeights(index), self.maker.new_linear
        first = self._is_decoder_layer(index)
        inside = s.heads * s.head_size
        for name in (*SELF_NAMES, *(CROSS_NAMES if first else ())):
            ends = (inside, s.hidden) if name[-1] == "o" else (s.hidden, inside)
            layer.linears[name] = make(name[-1], *ends, False)
        if s.family == "umt5" or index in (0, s.sizes["encoder_layers"]):
            layer.norms["bias"] = self.maker.new_norm((s.sizes["buckets"], s.heads)), None
        for name in ("in", "cross", "mid") if first else ("in", "mid"):
            layer.norms[name] = self.maker.new_norm((s.hidden,)), None
        for name, module in (("gate", "wi_0"), ("up", "wi_1")) if s.gated else (("up", "wi"),):
            layer.linears[name] = make(module, s.hidden, s.inner, False)
        layer.linears["down"] = make("wo", s.inner, s.hidden, False)
        return layer

    def _is_decoder_layer(self, index: int) -> bool:
        return index >= self.shape.sizes["encoder_layers"]

    # ------------------------------------------------------------------------------------------- forward
    def forward(
        self, batch: int, seq: int, run: LayerRunner, cache: KeyValueCache | None = None, length: int = 0
    ) -> Tensor:
        """Run both; ``seq`` is the length of the text and of the labels."""
        count = self.shape.sizes["encoder_layers"]
        states = self._run_stack(self.layers[:count], self.encoder_norm, batch, seq, run, None)
        return self._run_stack(self.layers[count:], self.norm, batch, seq, run, states)

    def _run_stack(
        self, layers: list[LayerWeights], norm: tuple[Tensor, Tensor | None], batch: int, seq: int, run: LayerRunner,
        states: Tensor | None,
    ) -> Tensor:  # fmt: skip
        tokens = self.ops.embedding(batch * seq, self.token_table, (batch, seq, self.shape.hidden))
        self.require_input_grad(tokens)
        mask = self._causal_mask(batch, seq, tokens.width) if states is not None else None
        hidden = self.drop_hidden(tokens)
        if states is not None:
            hidden, states = hidden_and_states(self.ops, hidden, states, self.job.checkpointing != "none")
        biases: list[Tensor | None] = [None, None]  # of the self attention and of the cross attention
        for layer in layers:

            def call_layer(x: Tensor, layer: LayerWeights = layer) -> Tensor:
                return self._run_block(layer, x, mask, states, biases)

            hidden = run(call_layer, hidden, (states is None, "bias" in layer.norms), layer.index)
        del tokens
        return self.drop_hidden(self.apply_norm(hidden, norm))

    def _causal_mask(self, batch: int, seq: int, width: int) -> Tensor | None:
        """transformers leaves the mask to the kernel unless attention is eager."""
        if self.job.attention != "eager":
            return None
        shared = self.ops.new_empty((1, 1, seq, seq), 1)
        made = self.ops.new_empty((batch, 1, seq, seq), width)
        del shared
        return made

    def _run_block(
        self, layer: LayerWeights, x: Tensor, mask: Tensor | None, states: Tensor | None, biases: list[Tensor | None]
    ) -> Tensor:
        x = self._add_attention(layer, x, SELF_NAMES, "in", mask, None, biases, 0)
        if states is not None:
            x = self._add_attention(layer, x, CROSS_NAMES, "cross", None, states, biases, 1)
        y = self.apply_norm(x, layer.norms["mid"])
        return self.ops.add(x, self.drop_hidden(self._run_mlp(layer, y)))

    def _run_mlp(self, layer: LayerWeights, x: Tensor) -> Tensor:
        ops = self.ops
        if self.shape.gated:
            gate = self.apply_activation(apply_linear(ops, x, layer.linears["gate"]))
            up = apply_linear(ops, x, layer.linears["up"])
            y = ops.to_width(self.drop_hidden(ops.mul(gate, up)), self.width)
            out = apply_linear(ops, y, layer.linears["down"])
            del gate, up
            return out
        y = self.apply_activation(apply_linear(ops, x, layer.linears["up"]))
        y = ops.to_width(self.drop_hidden(y), self.width)  # T5 casts to the dtype of the weight
        return apply_linear(ops, y, layer.linears["down"])

    def _add_attention(
        self, layer: LayerWeights, x: Tensor, names: tuple[str, ...], norm: str, mask: Tensor | None,
        states: Tensor | None, biases: list[Tensor | None], which: int,
    ) -> Tensor:  # fmt: skip
        ops, s = self.ops, self.shape
        y = self.apply_norm(x, layer.norms[norm])
        source = y if states is None else states
        q = ops.split_heads(apply_linear(ops, y, layer.linears[names[0]]), s.heads, s.head_size)
        k = ops.split_heads(apply_linear(ops, source, layer.linears[names[1]]), s.heads, s.head_size)
        v = ops.split_heads(apply_linear(ops, source, layer.linears[names[2]]), s.heads, s.head_size)
        bias = biases[which]
        if bias is None or "bias" in layer.norms:
            bias = self._new_bias(layer, q.shape[2], k.shape[2], q.width, which)
        if not which and self._is_decoder_layer(layer.index) and s.family != "umt5" and mask is None:
            out, weights = self._attend(q, k, v, _hide_later_keys(ops, bias), mask, which)
        else:
            out, weights = self._attend(q, k, v, bias, mask, which)
        out = apply_linear(ops, out, layer.linears[names[3]])
        if "bias" in layer.norms and s.family != "umt5" and not ops.in_backward:
            biases[which] = self._share_bias(bias, which)
        out = ops.add(x, self.drop_hidden(out))
        del weights, y
        return out

    def _share_bias(self, bias: Tensor, which: int) -> Tensor:
        """Return the bias for the other layers; where they are recomputed, their gradients of it go to one sum."""
        if self.job.checkpointing == "none":
            return bias
        caught: list[Tensor] = []
        shared = self.ops.detach(bias)

        def catch(g: Grads) -> tuple[Tensor | None, ...]:
            one = g.pop()
            if not caught:  # a later one is added in place
                caught.append(one)
            return ()

        if self.maker.trains_weights or which:
            shared.fn = GraphNode(ACCUMULATE_SEQ, "bias", (), catch, 1)
        return shared

    def _new_bias(self, layer: LayerWeights, rows: int, keys: int, width: int, which: int) -> Tensor:
        """The bias of every head, query and key: rows of a small table by distance; zeros in the cross attention."""
        ops, s = self.ops, self.shape
        if which:
            made = ops.new_empty((1, s.heads, rows, keys), width)
            if (
                self.job.checkpointing != "none" and ops.grad_enabled and s.family != "umt5"
            ):  # transformers lets it require a gradient then
                made.fn = GraphNode(ACCUMULATE_SEQ, "bias", (), lambda g: (), 1)
            return made
        places = ops.new_empty((rows, keys), 8)
        buckets = ops.new_empty((rows, keys), 8)
        steps = [ops.new_empty((rows, keys), 8) for _ in range(3)]
        del steps
        made = ops.embedding(rows * keys, layer.norms["bias"][0], (1, s.heads, rows, keys))
        if made.fn is not None:
            made.fn.run = _keep_buckets(made.fn.run, buckets)
        del places, buckets
        return made

    def _attend(
        self, q: Tensor, k: Tensor, v: Tensor, bias: Tensor, mask: Tensor | None, which: int
    ) -> AttentionOutput:
        ops, drop = self.ops, self.shape.dropout_attention if self.training else 0.0
        if self.job.attention == "eager":
            return eager_attention(ops, q, k, v, mask, drop, False, False, False, bias)
        kernel = pick_attention_kernel(
            AttentionQuery(
                "sdpa", self.capability, ops.autocast or q.width, True, True, False, q.shape[3], dropout=drop,
                trains_mask=bias.requires_grad, fusable=bool(which),  # the learned bias lies in memory by query, key, head: no kernel reads it so
            )
        )  # fmt: skip
        if ops.autocast:
            bias = ops.to_width(bias, ops.autocast)
        return ops.merge_heads(run_attention(ops, kernel, q, k, v, bias, drop)), None

    def compute_logits(self, hidden: Tensor) -> Tensor:
        return apply_linear(self.ops, self.ops.scalar_op(hidden) if self.shape.scaled_logits else hidden, self.head)


def _keep_buckets(run: Backward | None, buckets: Tensor) -> Backward:
    """Return the backward of the bias' table, which keeps the numbers of its rows."""
    assert run is not None
    return lambda g, kept=buckets: run(g)  # type: ignore[misc]


def _hide_later_keys(ops: TorchOps, bias: Tensor) -> Tensor:
    """Return the bias where a key is not later than its query; the backward does the same with the gradient."""
    ops.tape.op = "where"
    causal = ops.new_empty(bias.shape[2:], 1)
    out = ops.empty_like(bias)
    if ops.any_requires_grad(bias):
        ops.count_saved()

        def backward(g: Grads, kept: Tensor = causal) -> tuple[Tensor | None, ...]:
            return (ops.empty_like(g[0]),)

        ops.add_node(out, "where", (bias,), backward)
    return out
