"""Decoder layers as transformers runs them, composed of the same parts for every family."""

from __future__ import annotations

from gpuready.fit import liger
from gpuready.fit.attention import Query, attend, drawn, eager, pick, repeat
from gpuready.fit.experts import moe
from gpuready.fit.projection import Linear, project
from gpuready.fit.rotary import rotate, rotated
from gpuready.fit.tensor import Node, Tensor
from gpuready.fit.weights import layer_of, norm_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuready.fit.architecture import Shape
    from gpuready.fit.generation import Cache
    from gpuready.fit.job import Card, Job
    from gpuready.fit.ops import Ops
    from gpuready.fit.projection import Maker
    from gpuready.fit.weights import Layer

    Rotary = tuple[Tensor, Tensor] | None
    Attended = tuple[Tensor, Tensor | None]


class Model:
    """A decoder with its weights and its forward pass."""

    def __init__(self, ops: Ops, shape: Shape, job: Job, card: Card, maker: Maker) -> None:
        self.ops, self.shape, self.job = ops, shape, job
        major, _, minor = card.capability.partition(".")
        self.capability = (int(major), int(minor or 0))
        self.training = job.task == "train"
        self.maker = maker
        ops.bias_first = shape.packed == "conv"
        width = maker.width
        self.table = maker.table((shape.vocabulary, shape.hidden))
        self.positions = maker.table((shape.positions, shape.hidden)) if shape.positions else None
        self.layers = [layer_of(self, n) for n in range(shape.layers)]
        self.norm = norm_of(self, shape.hidden)
        self.head = (
            Linear(self.table) if shape.tied else maker.head(shape.hidden, shape.vocabulary, shape.bias_head)
        )
        self.width = width
        self.cache: Cache | None = None
        self.length = 0
        self.told = False  # whether every row has its own mask and positions, as in generate

    def outer(self) -> list[Tensor]:
        """Return the weights outside of the layers."""
        found = [self.table, *(t for t in self.norm if t is not None), *self.head.tensors()]
        return found if self.positions is None else [*found, self.positions]

    def _window(self, index: int) -> int:
        return self.shape.windows[index] if self.shape.windows else 0

    # ------------------------------------------------------------------------------------------- forward
    def forward(
        self,
        batch: int,
        seq: int,
        run: Callable[[Callable[..., Tensor], Tensor, object, int], Tensor],
        cache: Cache | None = None,
        length: int = 0,
    ) -> Tensor:
        """Run from tokens to the last hidden state; ``run`` calls a layer, with or without checkpointing.

        With a cache, ``length`` is the number of tokens including the earlier ones.
        """
        ops, s = self.ops, self.shape
        ops.tape.op = "embedding"
        embeds = ops.embedding(batch * seq, self.table, (batch, seq, s.hidden))
        if s.scaled_embedding:
            embeds = ops.scale(embeds)
        if self.maker.inputs_need_grad and not embeds.needs and ops.grad:
            # checkpointing needs an input with a gradient: a leaf, which the graph holds to its end
            leaf = ops.detached(embeds)
            embeds.fn = Node(ops.seq, "inputs", (), lambda g, kept=leaf: (), 1)  # type: ignore[misc]
            del leaf
        tokens = places = None
        if self.positions is not None:
            rows = batch if self.told else 1
            places = ops.embedding(rows * seq, self.positions, (rows, seq, s.hidden))
            tokens, embeds = embeds, ops.add(embeds, places)  # all three live until the end of the pass
        positions = ops.scratch(8 * seq)
        self.cache, self.length = cache, length
        masks = self.masks(batch, seq, embeds.width)
        hidden = ops.dropout(embeds, s.dropout_embedding) if self.training else embeds
        if ops.modules is not None:
            ops.modules.visit([])  # the rotary embedding
        rotary = rotate(self, batch * seq if self.told else seq, embeds.width)
        local = (
            rotate(self, batch * seq if self.told else seq, embeds.width)
            if s.family == "gemma3_text"
            else None
        )
        if tokens is not None:
            del embeds  # the sum has no variable of its own
        for layer in self.layers:
            mask = masks[self._window(layer.index)]

            def call(x: Tensor, layer: Layer = layer, mask: Tensor | None = mask) -> Tensor:
                return self.layer(layer, x, rotary, mask)

            hidden = run(call, hidden, (bool(layer.moe), mask is None), layer.index)
        out = self.normed(hidden, self.norm)
        if ops.modules is not None:
            out = ops.modules.passed(out)
        del positions, tokens, places, local
        self.cache = None
        return out

    def masks(self, batch: int, seq: int, width: int) -> dict[int, Tensor | None]:
        """Build the masks of a pass as transformers does, per window; None if transformers omits the mask."""
        ops, cache, eager_mask = self.ops, self.cache, self.job.attention == "eager"
        made: dict[int, Tensor | None] = {}
        both = {0} if self.shape.family in ("gemma2", "gemma3_text") else set()  # these always build both
        past = self.length - seq if cache is not None else 0
        rows = batch if self.told or self.job.padded else 1  # without padding one mask serves all rows
        for window in sorted({*self.shape.windows, *both} or {0}):
            keys = seq if cache is None else cache.seen(window, past, seq)
            fixed = cache is not None and cache.longest > 0 and seq == 1
            causal = not self.job.padded and not (window and keys >= window) and not fixed
            if self.job.attention == "flash" or (
                causal and not eager_mask and (seq in (1, keys) or not past)
            ):
                made[window] = None
                continue
            shared = drawn(ops, (rows, 1, seq, keys), bool(window), self.told or self.job.padded)
            if eager_mask:
                made[window] = ops.new((batch, 1, seq, keys), width)
            else:
                made[window] = Tensor(shared.memory, (batch, 1, seq, keys), 1)
            del shared
        return made

    def layer(self, layer: Layer, hidden: Tensor, rotary: Rotary, mask: Tensor | None) -> Tensor:
        """Run one decoder layer."""
        s = self.shape
        if s.parallel == "phi":
            return self._phi(layer, hidden, rotary, mask)
        if s.parallel == "neox":
            return self._neox(layer, hidden, rotary, mask)
        ops, drop = self.ops, s.dropout_hidden if self.training else 0.0
        names = (
            s.packed == "conv"
        )  # gpt2 has one variable per step, which lives until reassigned
        residual = hidden
        x = self.normed(hidden, layer.norms["in"])
        before = x if names else None
        x, weights = self.attention(layer, x, rotary, mask)
        if drop and not names:
            x = ops.dropout(x, drop)
        held = (weights, x if names else None)
        if s.post_norms:
            x = self.normed(x, layer.norms["mid"])
        x = ops.add(residual, x)
        before, residual = None, x
        x = self.normed(x, layer.norms["pre" if s.post_norms else "mid"])
        before = x if names else None
        x = self.mlp(layer, x)
        if drop:
            x = ops.dropout(x, drop)
        if s.post_norms:
            x = self.normed(x, layer.norms["post"])
        out = ops.add(residual, x)
        del before, held
        return out

    def _neox(self, layer: Layer, hidden: Tensor, rotary: Rotary, mask: Tensor | None) -> Tensor:
        ops, drop = self.ops, self.shape.dropout_hidden if self.training else 0.0
        attended, weights = self.attention(layer, self.normed(hidden, layer.norms["in"]), rotary, mask)
        attended = ops.dropout(attended, drop)
        mlp = self.mlp(layer, self.normed(hidden, layer.norms["mid"]))
        mlp = ops.dropout(mlp, drop)
        out = ops.add(ops.add(mlp, attended), hidden)
        del weights
        return out

    def _phi(self, layer: Layer, hidden: Tensor, rotary: Rotary, mask: Tensor | None) -> Tensor:
        ops, drop = self.ops, self.shape.dropout_hidden if self.training else 0.0
        x = self.normed(hidden, layer.norms["in"])
        attended, weights = self.attention(layer, x, rotary, mask)
        attended = ops.dropout(attended, drop)
        mlp = ops.dropout(self.mlp(layer, x), drop)
        out = ops.add(ops.add(attended, mlp), hidden)
        del weights
        return out

    # --------------------------------------------------------------------------------------------- parts
    def normed(self, x: Tensor, weights: tuple[Tensor, Tensor | None]) -> Tensor:
        if self.ops.modules is None:
            return self._normed(x, weights)
        inside = [t for t in weights if t is not None]
        return self.ops.modules.around(inside, lambda y: self._normed(y, weights), x)

    def _normed(self, x: Tensor, weights: tuple[Tensor, Tensor | None]) -> Tensor:
        w, b = weights
        if self.shape.norm == "layer":
            return self.ops.layer_norm(x, w, b)
        if self.job.loss == "liger":
            return liger.norm(self.ops, x, w, in_place=not self.shape.post_norms)
        return self._gemma_norm(x, w) if self.shape.norm == "gemma" else self._rms_norm(x, w)

    def _rms_norm(self, x: Tensor, w: Tensor) -> Tensor:
        ops = self.ops
        wide = ops.to(x, 4)
        square = ops.unary(wide, "pow", temporaries=2)
        variance = ops.mean(square)
        del square
        wide = ops.mul(wide, ops.unary(ops.scale(variance, "add"), "rsqrt", keeps="result", temporaries=2))
        return ops.mul(w, ops.to(wide, x.width))

    def _gemma_norm(self, x: Tensor, w: Tensor) -> Tensor:
        ops = self.ops
        out = self._gemma_inner(ops.to(x, 4))
        out = ops.mul(out, ops.scale(ops.to(w, 4), "add"))
        return ops.to(out, x.width)

    def _gemma_inner(self, x: Tensor) -> Tensor:
        ops = self.ops
        return ops.mul(
            x,
            ops.unary(
                ops.scale(ops.mean(ops.unary(x, "pow", temporaries=2)), "add"), "rsqrt", "result", 0, 2
            ),
        )

    def attention(self, layer: Layer, x: Tensor, rotary: Rotary, mask: Tensor | None) -> Attended:
        """Return the result, and the attention weights if materialized: the layer holds them to its end."""
        if self.ops.modules is None:
            return self._attention(layer, x, rotary, mask)
        return self.ops.modules.attending(lambda y: self._attention(layer, y, rotary, mask), x)

    def _attention(self, layer: Layer, x: Tensor, rotary: Rotary, mask: Tensor | None) -> Attended:
        ops = self.ops
        q, k, v = self._qkv(layer, x)
        whole = v if self.shape.packed in ("neox", "phi3") else None  # they hold the unsplit tensor in a variable
        named: list[object] = []
        if rotary is not None:
            q, k = rotated(self, q, k, rotary, named)
        if self.cache is not None:
            k, v = self.cache.update(layer.index, k, v, self.length, self._window(layer.index))
        out, weights = self.core(q, k, v, mask)
        out = project(
            ops, out, layer.linears["o"]
        )  # its input is freed before queries, keys and values
        if self.shape.packed == "conv" and self.training:  # gpt2 applies dropout inside its attention
            out = ops.dropout(out, self.shape.dropout_hidden)
        del whole, named
        return out, weights

    def core(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> Attended:
        """Run attention and merge the heads."""
        ops, s = self.ops, self.shape
        dropout = s.dropout_attention if self.training else 0.0
        width = ops.autocast or q.width
        grouped = s.kv_heads != s.heads
        job, masked = self.job, mask is not None
        bf16 = "fp16" not in (job.precision.removeprefix("amp-"), job.autocast)
        kernel = pick(Query(job.attention, self.capability, width, bf16, masked, grouped, s.head_size))
        if kernel == "eager":
            upcast = s.family != "gpt2" and bf16  # fp16 enters an fp32 softmax without a copy
            return eager(ops, q, k, v, mask, dropout, s.softcap_attention, upcast, widens=s.family != "gpt2")
        if masked and grouped:
            k, v = repeat(ops, k, s.heads), repeat(ops, v, s.heads)
        elif q.shape[2] > 1 and k.shape[2] > q.shape[2]:  # a static cache that is not full yet
            k, v = (ops.view(x, (*x.shape[:2], *q.shape[2:])) for x in (k, v))
        out = attend(ops, kernel, q, k, v, mask, dropout)
        return ops.merge_heads(out), None

    def _qkv(self, layer: Layer, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ops, s = self.ops, self.shape
        batch, seq = x.shape[0], x.shape[1]
        if s.packed == "neox":
            whole = ops.split_heads(project(ops, x, layer.linears["qkv"]), s.heads, 3 * s.head_size)
            q, k, v = ops.split(whole, [(batch, s.heads, seq, s.head_size)] * 3)
            return q, k, v
        if s.packed:
            sizes = (s.heads * s.head_size, s.kv_heads * s.head_size, s.kv_heads * s.head_size)
            whole = project(ops, x, layer.linears["qkv"])
            shapes = [(batch, seq, n) for n in sizes]
            parts = (
                [ops.slice(whole, one) for one in shapes] if s.packed == "phi3" else ops.split(whole, shapes)
            )
            q, k, v = (ops.split_heads(p, p.shape[-1] // s.head_size, s.head_size) for p in parts)
            return q, k, v
        made = []
        for name, heads in (("q", s.heads), ("k", s.kv_heads), ("v", s.kv_heads)):
            if name in layer.norms and s.family == "gemma3_text":  # gemma3 transposes before the norm
                heads_out = ops.split_heads(project(ops, x, layer.linears[name]), heads, s.head_size)
                made.append(self.normed(heads_out, layer.norms[name]))
                del heads_out
            elif name in layer.norms:
                flat = ops.heads_apart(project(ops, x, layer.linears[name]), heads, s.head_size)
                made.append(ops.turned(self.normed(flat, layer.norms[name])))
                del flat
            else:
                made.append(ops.split_heads(project(ops, x, layer.linears[name]), heads, s.head_size))
        return made[0], made[1], made[2]

    def activated(self, x: Tensor) -> Tensor:
        if self.ops.modules is None:
            return self._activated(x)
        return self.ops.modules.around([], self._activated, x)

    def _activated(self, x: Tensor) -> Tensor:
        """The activation function: one kernel, or a chain of kernels if the model composes it."""
        ops = self.ops
        if self.shape.activation != "gelu_new":
            kept = "result" if self.shape.activation in ("relu", "tanh", "sigmoid") else "input"
            return ops.unary(x, self.shape.activation, keeps=kept)
        half = ops.scale(
            x
        )  # one expression, as in the model: each intermediate is freed with the next
        return ops.mul(
            half,
            ops.scale(
                ops.unary(
                    ops.scale(ops.add(x, ops.scale(self._cubed(x)))),
                    "tanh",
                    keeps="result",
                ),
                "add",
            ),
        )

    def _cubed(self, x: Tensor) -> Tensor:
        """Cube the values; autocast computes powers in fp32."""
        ops = self.ops
        return ops.unary(ops.to(x, 4) if ops.autocast else x, "pow", temporaries=2)

    def mlp(self, layer: Layer, x: Tensor) -> Tensor:
        if self.ops.modules is None:
            return self._feed(layer, x)
        return self.ops.modules.around([], lambda y: self._feed(layer, y), x)

    def _feed(self, layer: Layer, x: Tensor) -> Tensor:
        ops, s = self.ops, self.shape
        if layer.moe:
            return moe(self, layer, x)
        if s.packed == "phi3":
            batch, seq, both = x.shape[0], x.shape[1], project(ops, x, layer.linears["gate_up"])
            gate, up = ops.split(both, [(batch, seq, s.inner)] * 2)
            if self.job.loss == "liger":
                del both
                return project(ops, liger.gate(ops, gate, up, parts=True), layer.linears["down"])
            return project(ops, ops.mul(up, self.activated(gate)), layer.linears["down"])
        if s.gated:
            return self.gated(x, layer.linears["gate"], layer.linears["up"], layer.linears["down"])
        y = project(ops, x, layer.linears["up"])
        y = self.activated(y)
        y = project(ops, y, layer.linears["down"])
        return y

    def gated(self, x: Tensor, gate: Linear, up: Linear, down: Linear) -> Tensor:
        ops = self.ops
        if self.job.loss == "liger":
            return project(ops, liger.gate(ops, project(ops, x, gate), project(ops, x, up)), down)
        return project(ops, ops.mul(self.activated(project(ops, x, gate)), project(ops, x, up)), down)
