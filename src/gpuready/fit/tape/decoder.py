"""Decoder layers as transformers runs them, composed of the same parts for every family."""

from collections.abc import Callable

from gpuready.fit.job.model_shape import MODEL_FAMILIES, ModelShape, refuse_unknown_layers
from gpuready.fit.job.records import FitJob, GpuCard
from gpuready.fit.tape import liger
from gpuready.fit.tape import loss as losses
from gpuready.fit.tape.attention import (
    AttentionQuery,
    build_mask,
    eager_attention,
    pick_attention_kernel,
    repeat_kv_heads,
    run_attention,
)
from gpuready.fit.tape.autograd import GraphNode, Tensor
from gpuready.fit.tape.experts import run_moe
from gpuready.fit.tape.layer_weights import new_layer_weights, new_norm_weights
from gpuready.fit.tape.linear_layers import LinearLayer, WeightMaker, apply_linear
from gpuready.fit.tape.model_parts import KeyValueCache, LayerWeights
from gpuready.fit.tape.norms import gemma_norm, rms_norm, run_activation
from gpuready.fit.tape.rotary import apply_rotary, rotary_tables
from gpuready.fit.tape.torch_ops import TorchOps

RotaryTables = tuple[Tensor, Tensor] | None
AttentionOutput = tuple[Tensor, Tensor | None]


class DecoderModel:
    """A decoder with its weights and its forward pass."""

    def __init__(self, ops: TorchOps, shape: ModelShape, job: FitJob, card: GpuCard, maker: WeightMaker) -> None:
        if shape.family not in MODEL_FAMILIES or (0.0 < shape.rotary < 1.0 and shape.packed != "phi3"):
            refuse_unknown_layers(shape.family)
        self.ops, self.shape, self.job = ops, shape, job
        major, _, minor = card.capability.partition(".")
        self.capability = (int(major), int(minor or 0))
        self.training = job.task == "train"
        self.maker = maker
        ops.bias_first = shape.packed == "conv"
        width = maker.width
        self.token_table = maker.new_table((shape.vocabulary, shape.hidden))
        self.position_table = maker.new_table((shape.positions, shape.hidden)) if shape.positions else None
        self.layers = [new_layer_weights(self, n) for n in range(shape.layers)]
        self.norm = new_norm_weights(self, shape.hidden)
        self.head = LinearLayer(self.token_table) if shape.tied else maker.new_head(shape.hidden, shape.vocabulary)
        self.width = width
        self.cache: KeyValueCache | None = None
        self.total_length = 0
        self.has_row_masks = False  # whether every row has its own mask and positions, as in generate

    def list_outer_tensors(self) -> list[Tensor]:
        """Return the weights outside of the layers."""
        tensors = [self.token_table, *(t for t in self.norm if t is not None), *self.head.list_tensors()]
        return tensors if self.position_table is None else [*tensors, self.position_table]

    def rotary_size(self) -> int:
        """Return how many values of a head are rotated."""
        return int(self.shape.head_size * self.shape.rotary)

    def _layer_window(self, index: int) -> int:
        return self.shape.windows[index] if self.shape.windows else 0

    # ------------------------------------------------------------------------------------------- forward
    def forward(
        self,
        batch: int,
        seq: int,
        run: Callable[[Callable[..., Tensor], Tensor, object, int], Tensor],
        cache: KeyValueCache | None = None,
        length: int = 0,
    ) -> Tensor:
        """Run from tokens to the last hidden state; ``run`` calls a layer, with or without checkpointing.

        With a cache, ``length`` is the number of tokens including the earlier ones.
        """
        ops, s = self.ops, self.shape
        ops.tape.op = "embedding"
        embeds = ops.embedding(batch * seq, self.token_table, (batch, seq, s.hidden))
        if s.scaled_embedding:
            embeds = ops.scalar_op(embeds)
        self.require_input_grad(embeds)
        tokens = places = None
        if self.position_table is not None:
            rows = batch if self.has_row_masks else 1
            places = ops.embedding(rows * seq, self.position_table, (rows, seq, s.hidden))
            tokens, embeds = embeds, ops.add(embeds, places)  # all three live until the end of the pass
        positions = ops.new_scratch(8 * seq)
        self.cache, self.total_length = cache, length
        masks = self.build_masks(batch, seq, embeds.width)
        hidden = ops.dropout(embeds, s.dropout_embedding) if self.training else embeds
        if ops.zero3 is not None:
            ops.zero3.enter_module([])  # the rotary embedding
        places_to_turn = batch * seq if self.has_row_masks else seq
        rotary = rotary_tables(self, places_to_turn, embeds.width)
        local = (
            rotary_tables(self, places_to_turn, embeds.width)
            if s.family == "gemma3_text"  # one table for each kind of layer
            else None
        )
        if tokens is not None:
            del embeds  # the sum has no variable of its own
        for layer in self.layers:
            mask = masks[self._layer_window(layer.index)]

            def call_layer(x: Tensor, layer: LayerWeights = layer, mask: Tensor | None = mask) -> Tensor:
                return self.run_layer(layer, x, rotary, mask)

            hidden = run(call_layer, hidden, (bool(layer.moe), mask is None), layer.index)
        out = self.apply_norm(hidden, self.norm)
        if ops.zero3 is not None:
            out = ops.zero3.mark_module_end(out)
        del positions, tokens, places, local
        self.cache = None
        return out

    def require_input_grad(self, embeds: Tensor) -> None:
        """Checkpointing needs an input with a gradient: a leaf, which the graph holds to its end."""
        ops = self.ops
        if self.maker.inputs_need_grad and not embeds.requires_grad and ops.grad_enabled:
            leaf = ops.detach(embeds)
            embeds.fn = GraphNode(ops.seq, "inputs", (), lambda g, kept=leaf: (), 1)  # type: ignore[misc]
            del leaf

    def build_masks(self, batch: int, seq: int, width: int) -> dict[int, Tensor | None]:
        """Build the masks of a pass as transformers does, per window; None if transformers omits the mask."""
        ops, cache, eager_mask = self.ops, self.cache, self.job.attention == "eager"
        made: dict[int, Tensor | None] = {}
        both = {0} if self.shape.family in ("gemma2", "gemma3_text") else set()  # these always build both
        past = self.total_length - seq if cache is not None else 0
        rows = batch if self.has_row_masks or self.job.padded else 1  # without padding one mask serves all rows
        for window in sorted({*self.shape.windows, *both} or {0}):
            keys = seq if cache is None else cache.visible_keys(window, past, seq)
            fixed = cache is not None and cache.max_length > 0 and seq == 1
            causal = not self.job.padded and not (window and keys >= window) and not fixed
            if self.job.attention == "flash" or (causal and not eager_mask and (seq in (1, keys) or not past)):
                made[window] = None
                continue
            shared = build_mask(ops, (rows, 1, seq, keys), bool(window), self.has_row_masks or self.job.padded)
            if eager_mask:
                made[window] = ops.new_empty((batch, 1, seq, keys), width)
            else:
                made[window] = Tensor(shared.memory, (batch, 1, seq, keys), 1)
            del shared
        return made

    def run_layer(self, layer: LayerWeights, hidden: Tensor, rotary: RotaryTables, mask: Tensor | None) -> Tensor:
        """Run one decoder layer."""
        s = self.shape
        ops, drop = self.ops, s.dropout_hidden if self.training else 0.0
        names = s.packed == "conv"  # gpt2 has one variable per step, which lives until reassigned
        residual = hidden
        x = self.apply_norm(hidden, layer.norms["in"])
        before = x if names else None
        x, weights = self.self_attention(layer, x, rotary, mask)
        if drop and not names:
            x = ops.dropout(x, drop)
        live_results = (weights, x if names else None)
        if s.post_norms:
            x = self.apply_norm(x, layer.norms["mid"])
        x = ops.add(residual, x)
        before, residual = None, x
        x = self.apply_norm(x, layer.norms["pre" if s.post_norms else "mid"])
        before = x if names else None
        x = self.run_mlp(layer, x)
        if drop:
            x = ops.dropout(x, drop)
        if s.post_norms:
            x = self.apply_norm(x, layer.norms["post"])
        out = ops.add(residual, x)
        del before, live_results
        return out

    def compute_logits(self, hidden: Tensor) -> Tensor:
        return losses.compute_logits(self, hidden)

    def compute_loss(self, hidden: Tensor, logits: Tensor) -> Tensor:
        return losses.plain_loss(self, hidden, logits)

    # --------------------------------------------------------------------------------------------- parts
    def apply_norm(self, x: Tensor, weights: tuple[Tensor, Tensor | None]) -> Tensor:
        if self.ops.zero3 is None:
            return self._apply_norm(x, weights)
        inside = [t for t in weights if t is not None]
        return self.ops.zero3.run_module(inside, lambda y: self._apply_norm(y, weights), x)

    def _apply_norm(self, x: Tensor, weights: tuple[Tensor, Tensor | None]) -> Tensor:
        w, b = weights
        if self.shape.norm == "layer":
            return self.ops.layer_norm(x, w, b)
        if self.job.loss == "liger":
            return liger.liger_norm(self.ops, x, w, in_place=not self.shape.post_norms)
        return (gemma_norm if self.shape.norm == "gemma" else rms_norm)(self.ops, x, w)

    def self_attention(
        self, layer: LayerWeights, x: Tensor, rotary: RotaryTables, mask: Tensor | None
    ) -> AttentionOutput:
        """Return the result, and the attention weights if materialized: the layer holds them to its end."""
        if self.ops.zero3 is None:
            return self._self_attention(layer, x, rotary, mask)
        return self.ops.zero3.run_attention_module(lambda y: self._self_attention(layer, y, rotary, mask), x)

    def _self_attention(
        self, layer: LayerWeights, x: Tensor, rotary: RotaryTables, mask: Tensor | None
    ) -> AttentionOutput:
        ops = self.ops
        q, k, v = self._project_qkv(layer, x)
        whole = v if self.shape.packed == "phi3" else None  # it holds the unsplit tensor in a variable
        if rotary is not None:
            q, k = apply_rotary(self, q, k, rotary)
        if self.cache is not None:
            k, v = self.cache.update_layer(layer.index, k, v, self.total_length, self._layer_window(layer.index))
        out, weights = self.attention_core(q, k, v, mask)
        out = apply_linear(ops, out, layer.linears["o"])  # its input is freed before queries, keys and values
        if self.shape.packed == "conv" and self.training:  # gpt2 applies dropout inside its attention
            out = ops.dropout(out, self.shape.dropout_hidden)
        del whole
        return out, weights

    def attention_core(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> AttentionOutput:
        """Run attention and merge the heads."""
        ops, s = self.ops, self.shape
        dropout = s.dropout_attention if self.training else 0.0
        width = ops.autocast or q.width
        grouped = s.kv_heads != s.heads
        job, masked = self.job, mask is not None
        bf16 = "fp16" not in (job.precision.removeprefix("amp-"), job.autocast)
        kernel = pick_attention_kernel(
            AttentionQuery(
                job.attention, self.capability, width, bf16, masked, grouped, q.shape[3], v.shape[3], dropout
            )
        )  # fmt: skip
        if kernel == "eager":
            widens = s.family != "gpt2"
            upcast = widens and bf16  # fp16 enters an fp32 softmax without a copy
            return eager_attention(ops, q, k, v, mask, dropout, s.softcap_attention, upcast, widens)
        if masked and grouped:
            k, v = repeat_kv_heads(ops, k, s.heads), repeat_kv_heads(ops, v, s.heads)
        elif self.cache is not None and 1 < q.shape[2] < k.shape[2]:  # a static cache that is not full yet
            k, v = (ops.view(x, (*x.shape[:2], *q.shape[2:])) for x in (k, v))
        out = run_attention(ops, kernel, q, k, v, mask, dropout)
        return ops.merge_heads(out), None

    def _project_qkv(self, layer: LayerWeights, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ops, s = self.ops, self.shape
        batch, seq = x.shape[0], x.shape[1]
        if s.packed:
            sizes = (s.heads * s.head_size, s.kv_heads * s.head_size, s.kv_heads * s.head_size)
            whole = apply_linear(ops, x, layer.linears["qkv"])
            shapes = [(batch, seq, n) for n in sizes]
            parts = [ops.slice(whole, one) for one in shapes] if s.packed == "phi3" else ops.split(whole, shapes)
            q, k, v = (ops.split_heads(p, p.shape[-1] // s.head_size, s.head_size) for p in parts)
            return q, k, v
        made = []
        for name, heads in (("q", s.heads), ("k", s.kv_heads), ("v", s.kv_heads)):
            if name in layer.norms and s.family == "gemma3_text":  # it transposes before the norm
                heads_out = ops.split_heads(apply_linear(ops, x, layer.linears[name]), heads, s.head_size)
                made.append(self.apply_norm(heads_out, layer.norms[name]))
                del heads_out
            elif name in layer.norms:
                flat = ops.split_heads_in_place(apply_linear(ops, x, layer.linears[name]), heads, s.head_size)
                made.append(ops.swap_seq_and_heads(self.apply_norm(flat, layer.norms[name])))
                del flat
            else:
                made.append(ops.split_heads(apply_linear(ops, x, layer.linears[name]), heads, s.head_size))
        return made[0], made[1], made[2]

    def apply_activation(self, x: Tensor) -> Tensor:
        if self.ops.zero3 is None:
            return self._apply_activation(x)
        return self.ops.zero3.run_module([], self._apply_activation, x)

    def _apply_activation(self, x: Tensor) -> Tensor:
        return run_activation(self.ops, self.shape.activation, x)

    def run_mlp(self, layer: LayerWeights, x: Tensor) -> Tensor:
        if self.ops.zero3 is None:
            return self._run_mlp(layer, x)
        return self.ops.zero3.run_module([], lambda y: self._run_mlp(layer, y), x)

    def _run_mlp(self, layer: LayerWeights, x: Tensor) -> Tensor:
        ops, s = self.ops, self.shape
        if layer.moe:
            return run_moe(self, layer, x)
        if s.packed == "phi3":
            batch, seq, both = x.shape[0], x.shape[1], apply_linear(ops, x, layer.linears["gate_up"])
            gate, up = ops.split(both, [(batch, seq, s.inner)] * 2)
            if self.job.loss == "liger":
                del both
                return apply_linear(ops, liger.liger_gate(ops, gate, up, parts=True), layer.linears["down"])
            return apply_linear(ops, ops.mul(up, self.apply_activation(gate)), layer.linears["down"])
        if s.gated:
            return self.run_gated_mlp(x, layer.linears["gate"], layer.linears["up"], layer.linears["down"])
        y = apply_linear(ops, x, layer.linears["up"])
        y = self.apply_activation(y)
        y = apply_linear(ops, y, layer.linears["down"])
        return y

    def run_gated_mlp(self, x: Tensor, gate: LinearLayer, up: LinearLayer, down: LinearLayer) -> Tensor:
        ops = self.ops
        if self.job.loss == "liger":
            return apply_linear(ops, liger.liger_gate(ops, apply_linear(ops, x, gate), apply_linear(ops, x, up)), down)
        return apply_linear(
            ops, ops.mul(self.apply_activation(apply_linear(ops, x, gate)), apply_linear(ops, x, up)), down
        )
