"""Encoders as transformers runs them: BERT, RoBERTa, ModernBERT and ViT, each with its head and its loss."""

from __future__ import annotations

from gpuready.fit.job.records import FitUndecided
from gpuready.fit.tape.autograd import Tensor
from gpuready.fit.tape.decoder import DecoderModel
from gpuready.fit.tape.decoder_layer import LayerWeights
from gpuready.fit.tape.layer_weights import new_norm_weights
from gpuready.fit.tape.linear_layers import LinearLayer, apply_linear
from gpuready.fit.tape.loss import cross_entropy
from gpuready.fit.tape.rotary import rotary_tables, rotate_half

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuready.fit.job.model_shape import ModelShape
    from gpuready.fit.job.records import FitJob, GpuCard
    from gpuready.fit.tape.decoder import AttentionOutput, RotaryTables
    from gpuready.fit.tape.key_value_cache import KeyValueCache
    from gpuready.fit.tape.linear_layers import WeightMaker
    from gpuready.fit.tape.torch_ops import Grads, TorchOps

    LayerRunner = Callable[[Callable[..., Tensor], Tensor, object, int], Tensor]


class EncoderModel(DecoderModel):
    """What the encoders share: attention over everything, and layer norms."""

    projection_names = ("query", "key", "value")
    output_names = ("dense", "dense", "dense")  # of the attention, and both of the MLP

    def __init__(self, ops: TorchOps, shape: ModelShape, job: FitJob, card: GpuCard, maker: WeightMaker) -> None:
        _refuse_what_encoders_lack(shape, job)
        self.ops, self.shape, self.job, self.maker = ops, shape, job, maker
        major, _, minor = card.capability.partition(".")
        self.capability = (int(major), int(minor or 0))
        self.training = job.task == "train"
        self.width = maker.width
        self.cache, self.total_length, self.has_row_masks = None, 0, False
        self.others: list[Tensor] = []  # weights outside of the layers
        self.position_table = None
        self.create_tables()
        self.layers = [self.new_layer(n) for n in range(shape.layers)]
        self.create_head()

    def create_tables(self) -> None:
        raise NotImplementedError

    def create_head(self) -> None:
        raise NotImplementedError

    def list_outer_tensors(self) -> list[Tensor]:
        return self.others

    def new_outer(self, *shape: int) -> Tensor:
        made = self.maker.new_norm(shape)
        self.others.append(made)
        return made

    def new_outer_norm(self) -> tuple[Tensor, Tensor | None]:
        pair = new_norm_weights(self, self.shape.hidden)
        self.others += [t for t in pair if t is not None]
        return pair

    def new_layer(self, index: int) -> LayerWeights:
        """Create the weights of a layer in module order."""
        s, layer, make = self.shape, LayerWeights(index), self.maker.new_linear
        for name, module in zip("qkv", self.projection_names, strict=True):
            layer.linears[name] = make(module, s.hidden, s.hidden, s.bias_qkv)
        layer.linears["o"] = make(self.output_names[0], s.hidden, s.hidden, s.bias_out)
        layer.norms["in"] = new_norm_weights(self, s.hidden)
        layer.linears["up"] = make(self.output_names[1], s.hidden, s.inner, s.bias_mlp)
        layer.linears["down"] = make(self.output_names[2], s.inner, s.hidden, s.bias_mlp)
        layer.norms["mid"] = new_norm_weights(self, s.hidden)
        return layer

    def run_layers(self, hidden: Tensor, run: LayerRunner, tables: dict[int, RotaryTables]) -> Tensor:
        masks = self._bidirectional_masks(hidden)
        for layer in self.layers:
            window = self._layer_window(layer.index)
            mask = masks[window]

            def call_layer(
                x: Tensor,
                layer: LayerWeights = layer,
                mask: Tensor | None = mask,
                rotary: RotaryTables = tables.get(window),  # noqa: B008
            ) -> Tensor:
                return self.run_layer(layer, x, rotary, mask)

            hidden = run(call_layer, hidden, mask is None, layer.index)
        return hidden

    def _bidirectional_masks(self, x: Tensor) -> dict[int, Tensor | None]:
        """Build the masks: none where everything is seen, one for all rows where there is a window or padding."""
        batch, seq = x.shape[0], x.shape[1]
        made: dict[int, Tensor | None] = {}
        for window in sorted({*self.shape.windows} or {0}):
            if self.job.attention == "flash" or not (window or self.job.padded):
                made[window] = None
                continue
            self.ops.tape.op = "mask"
            allowed = self.ops.new_empty((batch if self.job.padded else 1, 1, seq, seq), 1)
            if self.job.attention == "eager":
                made[window] = self.ops.new_empty((batch, 1, seq, seq), x.width)
            else:
                made[window] = Tensor(allowed.memory, (batch, 1, seq, seq), 1)
            del allowed
        return made

    def drop_hidden(self, x: Tensor) -> Tensor:
        return self.ops.dropout(x, self.shape.dropout_hidden if self.training else 0.0)

    def compute_loss(self, hidden: Tensor, logits: Tensor) -> Tensor:
        """Cross entropy in the dtype of the logits, without a shift."""
        ops, rows = self.ops, logits.numel // logits.shape[-1]
        return cross_entropy(ops, ops.view(logits, (rows, logits.shape[-1])), ops.new_scratch(0))


def _refuse_what_encoders_lack(shape: ModelShape, job: FitJob) -> None:
    for applies, what in (
        (job.task == "generate", "generation"),
        (job.dpo, "preference training"),
        (job.loss != "plain", f"the loss {job.loss!r}"),
        (job.zero == 3, "ZeRO stage 3"),
        (
            shape.kind == "encoder-decoder"
            and shape.family != "whisper"
            and shape.norm != "t5"
            and job.checkpointing != "none",
            "checkpointing",
        ),
        (
            shape.family in ("vit", "whisper") and job.method != "full" and job.checkpointing != "none",
            "checkpointing under an adapter",
        ),
        (job.tensor_parallel > 1, "tensor parallelism"),
    ):
        if applies:
            raise FitUndecided(f"{what} of the architecture {shape.family!r} is not known here")


class BertModel(EncoderModel):
    """BERT and RoBERTa with the head of a masked language model; the norm comes after each sum."""

    widens_softmax = False

    def create_tables(self) -> None:
        s = self.shape
        self.token_table = self.new_outer(s.vocabulary, s.hidden)
        self.positions = self.new_outer(s.sizes["positions"], s.hidden)
        self.types = self.new_outer(s.sizes["types"], s.hidden)
        self.norm = self.new_outer_norm()
        self.buffers = self.ops.new_scratch(16 * s.sizes["positions"])  # numbers of positions and of types

    def create_head(self) -> None:
        s = self.shape
        bias = self.new_outer(s.vocabulary)
        dense = self.maker.new_linear("dense", s.hidden, s.hidden, True)
        self.transform, self.head_norm = dense, self.new_outer_norm()
        self.head = LinearLayer(self.token_table if s.tied else self.new_outer(s.vocabulary, s.hidden), bias)
        self.others += dense.list_tensors()

    def forward(
        self, batch: int, seq: int, run: LayerRunner, cache: KeyValueCache | None = None, length: int = 0
    ) -> Tensor:
        ops, s = self.ops, self.shape
        whole = (batch, seq, s.hidden)
        rows = batch if s.family != "bert" else 1  # its positions skip the padding of each row
        tokens = ops.embedding(batch * seq, self.token_table, whole)
        self.require_input_grad(tokens)
        types = ops.embedding(batch * seq, self.types, whole)
        first = ops.add(tokens, types)
        places = ops.embedding(rows * seq, self.positions, (rows, seq, s.hidden))
        first = ops.add(first, places)
        first = self.apply_norm(first, self.norm)
        hidden = ops.dropout(first, s.dropout_embedding if self.training else 0.0)
        del tokens, types, places, first
        return self.run_layers(hidden, run, {})

    def run_layer(self, layer: LayerWeights, hidden: Tensor, rotary: RotaryTables, mask: Tensor | None) -> Tensor:
        ops = self.ops
        context, weights = self._attend(layer, hidden, mask)
        x = self.drop_hidden(apply_linear(ops, context, layer.linears["o"]))
        del context
        attended = self.apply_norm(ops.add(x, hidden), layer.norms["in"])
        del x
        inner = self.apply_activation(apply_linear(ops, attended, layer.linears["up"]))
        x = self.drop_hidden(apply_linear(ops, inner, layer.linears["down"]))
        out = self.apply_norm(ops.add(x, attended), layer.norms["mid"])
        del attended, weights, inner, x
        return out

    def _attend(self, layer: LayerWeights, x: Tensor, mask: Tensor | None) -> AttentionOutput:
        q, k, v = self._project_qkv(layer, x)
        return self.attention_core(q, k, v, mask)

    def compute_logits(self, hidden: Tensor) -> Tensor:
        x = self.apply_activation(apply_linear(self.ops, hidden, self.transform))
        x = self.apply_norm(x, self.head_norm)
        return apply_linear(self.ops, x, self.head)


class VitModel(EncoderModel):
    """ViT with a classifier over the first token."""

    projection_names = ("q_proj", "k_proj", "v_proj")
    output_names = ("o_proj", "fc1", "fc2")

    pixels: Tensor | None = None  # the batch, which the loop holds

    def create_tables(self) -> None:
        s = self.shape
        self.first_token = self.new_outer(1, 1, s.hidden)
        self.position_weights = self.new_outer(1, s.sizes["tokens"], s.hidden)
        self.patch_weight = self.new_outer(s.hidden, s.sizes["channels"] * s.sizes["patch"] ** 2)
        self.patch_bias = self.new_outer(s.hidden)

    def create_head(self) -> None:
        self.norm = self.new_outer_norm()
        self.head = self.maker.new_linear("classifier", self.shape.hidden, self.shape.sizes["labels"], True)
        self.others += self.head.list_tensors()

    def forward(
        self, batch: int, seq: int, run: LayerRunner, cache: KeyValueCache | None = None, length: int = 0
    ) -> Tensor:
        ops, s = self.ops, self.shape
        if self.pixels is None:
            pixels = (batch, s.sizes["channels"], s.sizes["picture"], s.sizes["picture"])
            self.pixels = ops.new_empty(pixels, self.width)
        patches = convolve(
            ops, self.pixels, self.patch_weight, self.patch_bias, (batch, s.sizes["tokens"] - 1, s.hidden)
        )
        whole = (batch, s.sizes["tokens"], s.hidden)
        x = _prepend_token(ops, self.first_token, patches, whole)
        del patches
        x = ops.add(x, self.position_weights)
        x = ops.dropout(x, s.dropout_embedding if self.training else 0.0)
        out = self.run_layers(x, run, {})
        del x
        return self.apply_norm(out, self.norm)

    def run_layer(self, layer: LayerWeights, hidden: Tensor, rotary: RotaryTables, mask: Tensor | None) -> Tensor:
        ops = self.ops
        x = self.apply_norm(hidden, layer.norms["in"])
        q, k, v = self._project_qkv(layer, x)
        x, weights = self.attention_core(q, k, v, mask)
        x = apply_linear(ops, x, layer.linears["o"])
        del q, k, v
        hidden = ops.add(self.drop_hidden(x), hidden)
        x = self.apply_norm(hidden, layer.norms["mid"])
        x = self.drop_hidden(self._run_mlp(layer, x))
        out = ops.add(x, hidden)
        del weights
        return out

    def compute_logits(self, hidden: Tensor) -> Tensor:
        first = self.ops.slice(hidden, (hidden.shape[0], hidden.shape[2]))
        return apply_linear(self.ops, first, self.head)


def convolve(ops: TorchOps, x: Tensor, w: Tensor, b: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A convolution whose stride is its kernel; keeps its input."""
    if ops.autocast:
        b, w, x = ops.cast_weight(b), ops.cast_weight(w), ops.to_width(x, ops.autocast)
    ops.tape.op = "convolution"
    out = ops.new_empty(shape, x.width)
    if ops.any_requires_grad(x, w, b):
        ops.count_saved()
        w_shape, b_shape, width, needs = w.shape, b.shape, w.width, x.requires_grad
        saved = ops.detach(x)

        def backward(g: Grads, kept: Tensor = saved) -> tuple[Tensor | None, ...]:
            to_input = ops.empty_like(kept) if needs else None
            return to_input, ops.new_empty(w_shape, width), ops.new_empty(b_shape, width)

        del saved
        ops.add_node(out, "convolution", (x, w, b), backward)
    return out


def _prepend_token(ops: TorchOps, token: Tensor, rest: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Concatenate a learned token, expanded over the batch, and the patches."""
    out = ops.new_empty(shape, rest.width)
    if ops.any_requires_grad(token, rest):
        token_shape, rest_shape = token.shape, rest.shape

        def backward(g: Grads) -> tuple[Tensor | None, ...]:
            part = Tensor(g[0].memory, rest_shape, g[0].width)
            part.view = True
            return ops.new_empty(token_shape, g[0].width), part

        ops.add_node(out, "cat", (token, rest), backward)
    return out


class ModernBertModel(EncoderModel):
    """ModernBERT: rotary embedding, windows in most layers, a gated MLP, and no biases."""

    def create_tables(self) -> None:
        self.token_table = self.new_outer(self.shape.vocabulary, self.shape.hidden)
        self.first_norm = self.new_outer(self.shape.hidden), None

    def create_head(self) -> None:
        s = self.shape
        self.norm = self.new_outer(s.hidden), None
        self.transform = self.maker.new_linear("dense", s.hidden, s.hidden, False)
        self.head_norm = self.new_outer(s.hidden), None
        bias = self.new_outer(s.vocabulary) if s.bias_head else None
        self.head = LinearLayer(self.token_table if s.tied else self.new_outer(s.vocabulary, s.hidden), bias)
        self.others += self.transform.list_tensors()

    def new_layer(self, index: int) -> LayerWeights:
        s, layer, make = self.shape, LayerWeights(index), self.maker.new_linear
        if index:
            layer.norms["in"] = self.maker.new_norm((s.hidden,)), None
        layer.linears["qkv"] = make("Wqkv", s.hidden, 3 * s.hidden, False)
        layer.linears["o"] = make("Wo", s.hidden, s.hidden, False)
        layer.norms["mid"] = self.maker.new_norm((s.hidden,)), None
        layer.linears["gate_up"] = make("Wi", s.hidden, 2 * s.inner, False)
        layer.linears["down"] = make("Wo", s.inner, s.hidden, False)
        return layer

    def forward(
        self, batch: int, seq: int, run: LayerRunner, cache: KeyValueCache | None = None, length: int = 0
    ) -> Tensor:
        ops, s = self.ops, self.shape
        x = ops.embedding(batch * seq, self.token_table, (batch, seq, s.hidden))
        self.require_input_grad(x)
        x = self.apply_norm(x, self.first_norm)
        x = ops.dropout(x, s.dropout_embedding if self.training else 0.0)
        tables = {window: rotary_tables(self, seq, x.width) for window in sorted({*s.windows})}
        return self.apply_norm(self.run_layers(x, run, tables), self.norm)

    def run_layer(self, layer: LayerWeights, hidden: Tensor, rotary: RotaryTables, mask: Tensor | None) -> Tensor:
        ops, s = self.ops, self.shape
        x = self.apply_norm(hidden, layer.norms["in"]) if layer.index else hidden
        attended, weights = self._attend(layer, x, rotary, mask)
        del x
        hidden = ops.add(hidden, attended)
        batch, seq = hidden.shape[0], hidden.shape[1]
        both = apply_linear(ops, self.apply_norm(hidden, layer.norms["mid"]), layer.linears["gate_up"])
        value, gate = ops.split(both, [(batch, seq, s.inner)] * 2)
        del both
        x = self.drop_hidden(ops.mul(self.apply_activation(value), gate))
        out = ops.add(hidden, apply_linear(ops, x, layer.linears["down"]))
        del attended, weights, x, value, gate
        return out

    def _attend(self, layer: LayerWeights, x: Tensor, tables: RotaryTables, mask: Tensor | None) -> AttentionOutput:
        ops, s = self.ops, self.shape
        batch, seq = x.shape[0], x.shape[1]
        whole = ops.split_heads_in_place(apply_linear(ops, x, layer.linears["qkv"]), 3 * s.heads, s.head_size)
        parts = ops.split(whole, [(batch, seq, s.heads, s.head_size)] * 3)
        q, k, v = (ops.swap_seq_and_heads(one) for one in parts)
        del parts
        assert tables is not None
        turned = [_rotate_twice_cast(ops, one, tables) for one in (q, k)]
        width = q.width
        q, k = (ops.to_width(one, width) for one in turned)
        del turned
        out, weights = self.attention_core(q, k, v, mask)
        out = ops.dropout(apply_linear(ops, out, layer.linears["o"]), s.dropout_attention if self.training else 0.0)
        del whole
        return out, weights

    def compute_logits(self, hidden: Tensor) -> Tensor:
        x = self.apply_activation(apply_linear(self.ops, hidden, self.transform))
        return apply_linear(self.ops, self.apply_norm(x, self.head_norm), self.head)

    def compute_loss(self, hidden: Tensor, logits: Tensor) -> Tensor:
        return super().compute_loss(hidden, self.ops.to_width(logits, 4))


def _rotate_twice_cast(ops: TorchOps, x: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
    """``x.float() * cos + rotate_half(x.float()) * sin``: the cast is made twice."""
    cos, sin = tables
    first = ops.mul(ops.to_width(x, 4), cos)
    return ops.add(first, ops.mul(rotate_half(ops, ops.to_width(x, 4)), sin))
