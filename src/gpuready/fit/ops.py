"""The operations that layers consist of: what each allocates forward, keeps, and allocates backward."""

from __future__ import annotations

from gpuready.fit.elementwise import Elementwise
from gpuready.fit.tensor import Tensor, reshaped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuready.fit.gathers import Gathers
    from gpuready.fit.tensor import Tape

    Grads = list[Tensor]

SORTED_FROM = 3072  # up to so many indices the embedding backward does not sort


class Ops(Elementwise):
    """Torch operations on tensors without data."""

    def __init__(self, tape: Tape, processors: int = 132, workspace: int = 32 << 20) -> None:
        super().__init__(tape, processors)
        self.workspace = workspace
        self.workspaces: dict[tuple[bool, bool], Tensor] = {}  # keyed by (is cuBLASLt's, is backward thread)
        self.autocast = 0  # width of autocast; 0 is off
        self.casts: dict[int, Tensor] = {}
        self.lora_dropout = 0.0
        self.compute = 2  # compute width of a quantised base
        self.double_quant = False
        self.half_is_fp16 = False
        self.bias_first = False  # gpt2's layers call addmm themselves
        self.modules: Gathers | None = None  # gathers a module's weights while it runs
        self.pinned: list[Tensor] | None = None  # tensors that outlive a checkpointed pass
        self.unasked: list[Tensor] = []  # gradients that nothing reads; they live as long as the graph

    # -------------------------------------------------------------------------------------------- matrices
    def ready(self) -> None:
        """The first matrix product of a thread allocates the workspace of its cuBLAS handle."""
        self._workspace(False, self.workspace)

    def ready_for_bias(self) -> None:
        """A product with a bias uses cuBLASLt, which has one more workspace per thread."""
        self.ready()
        self._workspace(True, 1 << 20)

    def _workspace(self, light: bool, size: int) -> None:
        key = light, self.in_backward
        if self.workspace and key not in self.workspaces and not self.tape.muted:
            kind, self.tape.kind = self.tape.kind, "workspaces"
            self.workspaces[key] = self.scratch(size)
            self.tape.kind = kind

    def once(self) -> set[int]:
        """Return the numbers of allocations that are made once and stay."""
        return {one.memory.number for one in self.workspaces.values() if one.memory is not None}

    def weight(self, w: Tensor) -> Tensor:
        """Return a weight as a matrix product takes it: under autocast a cached copy."""
        if not self.autocast or w.width == self.autocast:
            return w
        if w.trained:
            cached = self.casts.get(id(w))
            if cached is None:
                cached = self.casts[id(w)] = self.to(w, self.autocast)
            return cached
        return self.to(w, self.autocast)

    def linear(self, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        """``x @ w.T + b`` with the weight stored as (out, in)."""
        if self.autocast:  # the last argument is cast first: linear(x, w, b), or addmm(b, x, w)
            if b is not None and not self.bias_first:
                b = self.weight(b)
            w = self.weight(w)
            x = self.to(x, self.autocast)
            if b is not None and self.bias_first:
                b = self.weight(b)
        self.tape.op = "linear"
        shape = (*x.shape[:-1], w.shape[0])
        if not self.tracked(x, w, b):
            out = self.new(shape, x.width)
            self.ready() if b is None else self.ready_for_bias()
            return out
        self.keep()
        if w.needs and x.needs:
            self.keep()
        out = self.new(shape, x.width)
        self.ready() if b is None else self.ready_for_bias()
        kept = (self.detached(x) if w.needs else None, self.detached(w) if x.needs else None)
        needs = (x.needs, w.needs, b is not None and b.needs)
        x_shape, w_shape, b_shape = x.shape, w.shape, () if b is None else b.shape

        def back(g: Grads, kept: object = kept) -> tuple[Tensor | None, ...]:
            grad = g[0]
            order = (1, 0) if not b_shape else (0, 1)  # mm computes the second operand's gradient first, addmm the first's
            made: list[Tensor | None] = [None, None]
            for which in order:
                if needs[which]:
                    made[which] = one = self.new((x_shape, w_shape)[which], grad.width)
                    one.view = True
                    self.ready()
            late = (lambda: self.reduced(grad, b_shape)) if needs[2] else None
            return made[0], made[1], late  # type: ignore[return-value]

        self.tie(out, "linear", (x, w, b), back)
        return out

    def matmul(self, a: Tensor, b: Tensor, out_shape: tuple[int, ...], columns: bool = False) -> Tensor:
        """A batched product of two activations. With ``columns`` the second is transposed, and so is its gradient."""
        if self.autocast:
            b = self.to(b, self.autocast)
            a = self.to(a, self.autocast)
        self.tape.op = "matmul"
        tracked = self.tracked(a, b)
        if tracked:
            self.keep()
        out = self.new(out_shape, a.width)
        out.order = "heads"
        self.ready()
        if not tracked:
            return out
        kept = (self.detached(a) if b.needs else None, self.detached(b) if a.needs else None)
        shapes, needs = (a.shape, b.shape), (a.needs, b.needs)
        apart = 1 not in out_shape[:3]

        def back(g: Grads, kept: object = kept) -> tuple[Tensor | None, ...]:
            if apart and g[0].order != "heads":  # gradient in token order
                g[0] = self.new(out_shape, g[0].width)
            grad = g[0]
            made: list[Tensor | None] = [None, None]
            for which in (1, 0):
                if needs[which]:
                    made[which] = one = self.new(shapes[which], grad.width)
                    one.order, one.view = "columns" if columns and which else "heads", True
                    self.ready()
            return tuple(made)

        self.tie(out, "matmul", (a, b), back)
        return out

    # ------------------------------------------------------------------------------------ views and copies
    def copy(self, x: Tensor, shape: tuple[int, ...], op: str = "contiguous") -> Tensor:
        """Copy densely into another shape or order."""
        self.tape.op = op
        out = self.new(shape, x.width)
        if self.tracked(x):
            old, order = x.shape, x.order

            def back(g: Grads) -> tuple[Tensor | None, ...]:
                made = reshaped(g[0], old)
                if g[0].order != "columns":
                    made.order = "" if order else "heads"
                return (made,)

            self.tie(out, op, (x,), back)
        return out

    def split_heads(self, x: Tensor, heads: int, size: int) -> Tensor:
        """View (batch, seq, heads x size) as (batch, heads, seq, size). Its gradient must be in token order."""
        return self._by_heads(x, (x.shape[0], heads, x.shape[1], size))

    def heads_apart(self, x: Tensor, heads: int, size: int) -> Tensor:
        """View (batch, seq, heads x size) as (batch, seq, heads, size); the same for its gradient."""
        return self._by_heads(x, (x.shape[0], x.shape[1], heads, size))

    def _by_heads(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        heads, seq = x.shape[2] // shape[3], x.shape[1]
        out = Tensor(x.memory, shape, x.width)
        if self.tracked(x):
            old = x.shape

            def back(g: Grads) -> tuple[Tensor | None, ...]:
                grad = g[0]
                if grad.order == "heads" and heads > 1 and seq > 1:
                    self.tape.op = "contiguous"
                    return (self.new(old, grad.width),)
                made = reshaped(grad, old)
                made.order = ""
                return (made,)

            self.tie(out, "view", (x,), back)
        return out

    def turned(self, x: Tensor) -> Tensor:
        """View (batch, seq, heads, size) as (batch, heads, seq, size)."""
        batch, seq, heads, size = x.shape
        out = Tensor(x.memory, (batch, heads, seq, size), x.width)
        if self.tracked(x):
            old = x.shape

            def back(g: Grads) -> tuple[Tensor | None, ...]:
                made = reshaped(g[0], old)
                made.order = g[0].order
                return (made,)

            self.tie(out, "view", (x,), back)
        return out

    def turned_over(self, x: Tensor) -> Tensor:
        out = Tensor(x.memory, (x.shape[1], x.shape[0]), x.width)
        if self.tracked(x):
            old = x.shape
            self.tie(out, "view", (x,), lambda g: (reshaped(g[0], old),))
        return out

    def merge_heads(self, x: Tensor) -> Tensor:
        """(batch, heads, seq, size) as (batch, seq, heads x size): a view, or a copy if memory is in head order."""
        batch, heads, seq, size = x.shape
        shape = (batch, seq, heads * size)
        if x.order == "heads" and heads > 1 and seq > 1:
            return self.copy(x, shape)
        out = Tensor(x.memory, shape, x.width)
        if self.tracked(x):
            old = x.shape
            self.tie(out, "view", (x,), lambda g: (reshaped(g[0], old),))
        return out

    def slice(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """A view of a part; its gradient is a full tensor of zeros with this part."""
        out = Tensor(x.memory, shape, x.width)
        out.order = x.order
        if self.tracked(x):
            old, width = x.shape, x.width

            def back(g: Grads) -> tuple[Tensor | None, ...]:
                made = self.new(old, width)
                made.order = "heads" if len(old) == 4 else ""
                return (made,)

            self.tie(out, "slice", (x,), back)
        return out

    def cat(self, parts: Sequence[Tensor], shape: tuple[int, ...]) -> Tensor:
        """Concatenate into new memory; each part gets a view of the gradient."""
        self.tape.op = "cat"
        out = self.new(shape, max(p.width for p in parts))
        out.order = "heads" if len(shape) == 4 else ""
        if self.tracked(*parts):
            shapes = tuple(p.shape for p in parts)
            self.tie(out, "cat", tuple(parts), lambda g: tuple(reshaped(g[0], s) for s in shapes))
        return out

    def split(self, x: Tensor, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
        """Views of the parts; the backward concatenates their gradients."""
        made = [Tensor(x.memory, s, x.width) for s in shapes]
        if self.tracked(x):
            old, width = x.shape, x.width

            def back(g: Grads) -> tuple[Tensor | None, ...]:
                self.tape.op = "cat"
                for index, one in enumerate(g):
                    if one is None:  # a part without a gradient counts as zeros
                        g[index] = self.new(shapes[index], width)
                whole = self.new(old, width)
                whole.order = "heads" if len(old) == 4 else ""
                return (whole,)

            self.tie(made[0], "split", (x,), back, slots=len(made))
            for slot, part in enumerate(made):
                part.fn, part.slot = made[0].fn, slot
        return made

    # ---------------------------------------------------------------------------------------------- layers
    def embedding(self, ids: int, w: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Rows of a table; the gradient of the table is dense."""
        if self.modules is None:
            return self._embedding(ids, w, shape)
        return self.modules.table([w], lambda: self._embedding(ids, w, shape))

    def _embedding(self, ids: int, w: Tensor, shape: tuple[int, ...]) -> Tensor:
        self.tape.op = "embedding"
        out = self.new(shape, w.width)
        if self.tracked(w):
            table, width = w.shape, w.width

            def back(g: Grads) -> tuple[Tensor | None, ...]:
                if ids <= SORTED_FROM or not self.processors:
                    return (self.new(table, width),)
                held = [
                    self.scratch(ids * 8) for _ in range(2)
                ]  # the indices are sorted, rows are summed by segment
                made = self.new(table, width)
                segments = ids // 10 + min(ids, table[0])
                held += [self.scratch(8 * ids) for _ in range(3)]
                held += [self.scratch(8 * segments), self.scratch(4 * segments * table[1])]
                del held
                return (made,)

            self.tie(out, "embedding", (w,), back)
        return out

    def layer_norm(self, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        """torch's LayerNorm: keeps its input, and mean and deviation of every row."""
        if self.autocast:
            x = self.to(x, 4)
        self.tape.op = "layer_norm"
        rows = x.numel // x.shape[-1]
        tracked = self.tracked(x, w, b)
        if tracked:
            self.keep()
        out = self.like(x)
        moments = (self.new((rows,), 4), self.new((rows,), 4))
        if tracked:
            self.keep()
            needs = (x.needs, w.needs, b is not None and b.needs)
            kept = (self.detached(x), moments)
            shapes = (w.shape, w.width, w.shape if b is None else b.shape)

            def back(g: Grads, kept: object = kept) -> tuple[Tensor | None, ...]:
                made = [self.like(g[0]) if needs[0] else None]
                made += [self.new(shapes[0], shapes[1]) if need else None for need in needs[1:]]
                return tuple(made)

            self.tie(out, "layer_norm", (x, w, b), back)
        return out

    def dropout(self, x: Tensor, p: float) -> Tensor:
        """Keeps a mask of one byte per value, also in the first pass of a checkpointed layer."""
        if not p:
            return x
        self.tape.op = "dropout"
        if self.tracked(x):
            mask = self.new(x.shape, 1)  # allocated first by the kernel
            out = self.like(x)
            self.keep()

            def back(g: Grads, kept: Tensor = mask) -> tuple[Tensor | None, ...]:
                return (self.like(g[0]),)

            self.tie(out, "dropout", (x,), back)
            return out
        mask = self.new(x.shape, 1)
        out = self.like(x)
        del mask
        return out
