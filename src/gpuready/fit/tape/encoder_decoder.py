"""Whisper, BART and the models like it: an encoder, and a decoder that attends to its result in every layer."""

from __future__ import annotations

from gpuready.fit.tape.attention import build_mask
from gpuready.fit.tape.autograd import ACCUMULATE_SEQ, GraphNode, Tensor
from gpuready.fit.tape.decoder_layer import LayerWeights
from gpuready.fit.tape.encoders import EncoderModel, convolve
from gpuready.fit.tape.layer_weights import new_norm_weights
from gpuready.fit.tape.linear_layers import LinearLayer, apply_linear

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.fit.tape.encoders import LayerRunner
    from gpuready.fit.tape.key_value_cache import KeyValueCache
    from gpuready.fit.tape.torch_ops import Grads, TorchOps

SELF_NAMES, CROSS_NAMES = ("q", "k", "v", "o"), ("cq", "ck", "cv", "co")


class EncoderDecoderModel(EncoderModel):
    """What both share. BART norms after each sum; Whisper before each block, and copies the heads into order."""

    _source_mask: Tensor | None = None  # of padded text
    features: Tensor | None = None  # the batch of audio, which the loop holds
    widens_softmax = False

    # ------------------------------------------------------------------------------------------- weights
    def create_tables(self) -> None:
        s = self.shape
        self.embedding_norms: list[tuple[Tensor, Tensor | None]] = []  # of both stacks
        self.token_table = self.new_outer(s.vocabulary, s.hidden)
        if s.family == "whisper":
            self.convolutions = [
                (self.new_outer(s.hidden, 3 * width), self.new_outer(s.hidden)) for width in (s.sizes["bins"], s.hidden)
            ]
            self.source_positions = self.maker.new_frozen((s.sizes["source"], s.hidden))
            self.target_positions = self.new_outer(s.sizes["target"], s.hidden)
            self.encoder_norm = self.new_outer_norm()
            return
        places = [(s.sizes[name], s.hidden) for name in ("source", "target")]
        self.source_positions, self.target_positions = (
            self.new_outer(*one) if s.sizes["learned"] else self.maker.new_frozen(one) for one in places
        )
        if s.sizes["embedding_norm"]:
            self.embedding_norms.append(self.new_outer_norm())
        if s.sizes["pre"]:
            self.encoder_norm = self.new_outer_norm()
        if s.sizes["logits_bias"]:
            self.logits_bias = self.ops.new_empty((s.vocabulary,), self.width)

    def create_head(self) -> None:
        s = self.shape
        if s.sizes["embedding_norm"]:
            self.embedding_norms.append(self.new_outer_norm())
        if s.sizes["pre"]:
            self.norm = self.new_outer_norm()
        self.head = LinearLayer(self.token_table if s.tied else self.new_outer(s.vocabulary, s.hidden))

    def new_layer(self, index: int) -> LayerWeights:
        s, layer, make = self.shape, LayerWeights(index), self.maker.new_linear
        inner = s.inner if self._is_decoder_layer(index) else s.sizes["encoder_inner"]
        for name in SELF_NAMES:
            layer.linears[name] = self._new_projection(name)
        layer.norms["in"] = new_norm_weights(self, s.hidden)
        if self._is_decoder_layer(index):
            for name in CROSS_NAMES:
                layer.linears[name] = self._new_projection(name[1:])
            layer.norms["cross"] = new_norm_weights(self, s.hidden)
        layer.linears["up"] = make("fc1", s.hidden, inner, True)
        layer.linears["down"] = make("fc2", inner, s.hidden, True)
        layer.norms["mid"] = new_norm_weights(self, s.hidden)
        return layer

    def _new_projection(self, name: str) -> LinearLayer:
        s, module = self.shape, "out_proj" if name == "o" else f"{name}_proj"
        return self.maker.new_linear(module, s.hidden, s.hidden, not (name == "k" and s.family == "whisper"))

    def _is_decoder_layer(self, index: int) -> bool:
        return index >= self.shape.sizes["encoder_layers"]

    # ------------------------------------------------------------------------------------------- forward
    def forward(
        self, batch: int, seq: int, run: LayerRunner, cache: KeyValueCache | None = None, length: int = 0
    ) -> Tensor:
        """Run both; ``seq`` is the length of the labels, and in BART that of the text too."""
        encoded = self._encode(batch, seq, run)
        whole = (batch, seq, self.shape.hidden)
        tokens = self.ops.embedding(batch * seq, self.token_table, whole)
        self.require_input_grad(tokens)
        hidden = self._place_tokens(tokens, self.target_positions, 1)
        mask = self._causal_mask(batch, seq, tokens.width)
        del tokens
        hidden, states = self._pass_states(hidden, encoded)
        for layer in self.layers[self.shape.sizes["encoder_layers"] :]:

            def call_layer(x: Tensor, layer: LayerWeights = layer) -> Tensor:
                return self._run_block(layer, x, mask, states, self._source_mask)

            hidden = run(call_layer, hidden, "decoder", layer.index)
        if self.shape.sizes["pre"]:
            hidden = self.apply_norm(hidden, self.norm)
        del encoded
        self._source_mask = None
        return hidden

    def _encode(self, batch: int, seq: int, run: LayerRunner) -> Tensor:
        s = self.shape
        if s.family == "whisper":
            hidden = self._embed_audio(batch)
        else:
            tokens = self.ops.embedding(batch * seq, self.token_table, (batch, seq, s.hidden))
            self.require_input_grad(tokens)
            hidden = self._place_tokens(tokens, self.source_positions, 0)
            self._source_mask = self._bidirectional_masks(tokens)[0]
            del tokens
        for layer in self.layers[: s.sizes["encoder_layers"]]:

            def call_layer(x: Tensor, layer: LayerWeights = layer) -> Tensor:
                return self._run_block(layer, x, self._source_mask, None)

            hidden = run(call_layer, hidden, "encoder", layer.index)
        return self.apply_norm(hidden, self.encoder_norm) if s.sizes["pre"] else hidden

    def _embed_audio(self, batch: int) -> Tensor:
        ops, s = self.ops, self.shape
        frames = 2 * s.sizes["source"]
        if self.features is None:
            self.features = ops.new_empty((batch, s.sizes["bins"], frames), self.maker.unquantised_width)
        x = convolve(ops, self.features, *self.convolutions[0], (batch, frames, s.hidden))
        self.require_input_grad(x)
        x = ops.unary_op(x, "gelu")
        x = ops.unary_op(convolve(ops, x, *self.convolutions[1], (batch, frames // 2, s.hidden)), "gelu")
        places = ops.embedding(s.sizes["source"], self.source_positions, (1, s.sizes["source"], s.hidden))
        hidden = self.drop_hidden(ops.add(x, places))
        del places, x
        return hidden

    def _place_tokens(self, tokens: Tensor, table: Tensor, stack: int) -> Tensor:
        ops, rows = self.ops, tokens.shape[0] if self.shape.family == "whisper" else 1
        seq = tokens.shape[1]
        places = ops.embedding(rows * seq, table, (rows, seq, tokens.shape[2]))
        hidden = ops.add(tokens, places)
        if self.embedding_norms:
            hidden = self.apply_norm(hidden, self.embedding_norms[stack])
        hidden = self.drop_hidden(hidden)
        del places
        return hidden

    def _causal_mask(self, batch: int, seq: int, width: int) -> Tensor | None:
        """transformers leaves the mask to the kernel unless the rows are padded or attention is eager."""
        if self.job.attention != "eager":
            return None
        shared = build_mask(self.ops, (1, 1, seq, seq), False, False)
        made = self.ops.new_empty((batch, 1, seq, seq), width)
        del shared
        return made

    def _pass_states(self, hidden: Tensor, encoded: Tensor) -> tuple[Tensor, Tensor]:
        return hidden_and_states(self.ops, hidden, encoded, self.job.checkpointing != "none")

    # -------------------------------------------------------------------------------------------- blocks
    def _run_block(
        self, layer: LayerWeights, x: Tensor, mask: Tensor | None, states: Tensor | None, cross: Tensor | None = None
    ) -> Tensor:
        ops = self.ops
        held: list[Tensor | None] = []
        x = self._add_attention(layer, x, SELF_NAMES, "in", mask, None, held)
        if states is not None:
            x = self._add_attention(layer, x, CROSS_NAMES, "cross", cross, states, held)
        pre = self.shape.sizes["pre"]
        residual = x
        x = self.apply_norm(x, layer.norms["mid"]) if pre else x
        x = self.apply_activation(apply_linear(ops, x, layer.linears["up"]))
        x = ops.dropout(x, self.shape.dropout_embedding if self.training else 0.0)
        x = self.drop_hidden(apply_linear(ops, x, layer.linears["down"]))
        x = ops.add(residual, x)
        out = x if pre else self.apply_norm(x, layer.norms["mid"])
        del held
        return out

    def _add_attention(
        self, layer: LayerWeights, x: Tensor, names: tuple[str, ...], norm: str, mask: Tensor | None,
        states: Tensor | None, held: list[Tensor | None],
    ) -> Tensor:  # fmt: skip
        ops, pre = self.ops, self.shape.sizes["pre"]
        residual = x
        x = self.apply_norm(x, layer.norms[norm]) if pre else x
        x, weights = self._attend(layer, x, x if states is None else states, names, mask)
        x = ops.add(residual, self.drop_hidden(x))
        held[:] = [weights]  # the layer's variable, until the next attention
        return x if pre else self.apply_norm(x, layer.norms[norm])

    def _attend(
        self, layer: LayerWeights, x: Tensor, source: Tensor, names: tuple[str, ...], mask: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        ops = self.ops
        q = apply_linear(ops, x, layer.linears[names[0]])
        if self.shape.family == "whisper":
            q = ops.scalar_op(q)
        q = self._split_copied(q)
        k = self._split_copied(apply_linear(ops, source, layer.linears[names[1]]))
        v = self._split_copied(apply_linear(ops, source, layer.linears[names[2]]))
        out, weights = self.attention_core(q, k, v, mask)
        out = apply_linear(ops, out, layer.linears[names[3]])
        del q, k, v
        return out, weights

    def _split_copied(self, x: Tensor) -> Tensor:
        ops, s = self.ops, self.shape
        heads = ops.split_heads(x, s.heads, s.head_size)
        if s.family != "whisper":
            return heads
        out = ops.copy_contiguous(heads, heads.shape)
        out.order = "heads"
        return out

    def compute_logits(self, hidden: Tensor) -> Tensor:
        logits = apply_linear(self.ops, hidden, self.head)
        return self.ops.add(logits, self.logits_bias) if self.shape.sizes["logits_bias"] else logits


def hidden_and_states(ops: TorchOps, hidden: Tensor, encoded: Tensor, recomputed: bool) -> tuple[Tensor, Tensor]:
    """Return both for the decoder's layers. Where these are recomputed, each gives its gradient of the
    encoder's result to one sum, which goes back to the encoder once all of them have run.
    """
    if not recomputed or not encoded.requires_grad or not ops.grad_enabled:
        return hidden, encoded
    caught: list[Tensor] = []
    states, out = ops.detach(encoded), ops.detach(hidden)

    def catch(g: Grads) -> tuple[Tensor | None, ...]:
        one = g.pop()
        if not caught:  # a later one is added in place
            caught.append(one)
        return ()

    states.fn = GraphNode(ACCUMULATE_SEQ, "states", (), catch, 1)

    def backward(g: Grads) -> tuple[Tensor | None, ...]:
        return g[0], caught.pop()

    ops.add_node(out, "states", (hidden, encoded), backward)
    return out, states
