"""The operations that layers consist of: what each allocates forward, keeps, and allocates backward."""

from collections.abc import Callable, Sequence
from typing import Protocol

from gpuready.fit.tape.autograd import Tape, Tensor, view_gradient
from gpuready.fit.tape.elementwise_ops import ElementwiseOps


class WeightGatherer(Protocol):
    """Gathers the weights of a module while it runs; ``Zero3Weights`` is one."""

    def enter_module(self, tensors: Sequence[Tensor]) -> None: ...

    def mark_module_end(self, out: Tensor) -> Tensor: ...

    def run_module(self, tensors: Sequence[Tensor], call: Callable[[Tensor], Tensor], x: Tensor) -> Tensor: ...

    def run_table_module(self, tensors: Sequence[Tensor], call: Callable[[], Tensor]) -> Tensor: ...

    def run_attention_module(
        self, call: Callable[[Tensor], tuple[Tensor, Tensor | None]], x: Tensor
    ) -> tuple[Tensor, Tensor | None]: ...

    def find_gathered(self, tensor: Tensor | None) -> Tensor | None: ...

    def begin_forward(self) -> None: ...


Grads = list[Tensor]


SORT_THRESHOLD = 3072  # up to so many indices the embedding backward does not sort


class TorchOps(ElementwiseOps):
    """Torch operations on tensors without data."""

    def __init__(self, tape: Tape, processors: int = 132, workspace: int = 32 << 20) -> None:
        super().__init__(tape, processors)
        self.workspace_size = workspace
        self.workspaces: dict[tuple[bool, bool], Tensor] = {}  # keyed by (is cuBLASLt's, is backward thread)
        self.autocast = 0  # width of autocast; 0 is off
        self.autocast_cache: dict[int, Tensor] = {}
        self.lora_dropout = 0.0
        self.compute_width = 2  # compute width of a quantised base
        self.double_quant = False
        self.half_is_fp16 = False
        self.bias_first = False  # gpt2's layers call addmm themselves
        self.zero3: WeightGatherer | None = None  # gathers a module's weights while it runs
        self.checkpoint_survivors: list[Tensor] | None = None  # tensors that outlive a checkpointed pass

    # -------------------------------------------------------------------------------------------- matrices
    def ensure_workspace(self) -> None:
        """The first matrix product of a thread allocates the workspace of its cuBLAS handle."""
        self._make_workspace(False, self.workspace_size)

    def ensure_bias_workspace(self) -> None:
        """A product with a bias uses cuBLASLt, which has one more workspace per thread."""
        self.ensure_workspace()
        self._make_workspace(True, 1 << 20)

    def _make_workspace(self, is_cublaslt: bool, size: int) -> None:
        key = is_cublaslt, self.in_backward
        if self.workspace_size and key not in self.workspaces and not self.tape.muted:
            kind, self.tape.kind = self.tape.kind, "workspaces"
            self.workspaces[key] = self.new_scratch(size)
            self.tape.kind = kind

    def persistent_births(self) -> set[int]:
        """Return the numbers of allocations that are made once and stay."""
        return {one.memory.number for one in self.workspaces.values() if one.memory is not None}

    def cast_weight(self, w: Tensor) -> Tensor:
        """Return a weight as a matrix product takes it: under autocast a cached copy."""
        if not self.autocast or w.width == self.autocast:
            return w
        if w.trained:
            cached = self.autocast_cache.get(id(w))
            if cached is None:
                cached = self.autocast_cache[id(w)] = self.to_width(w, self.autocast)
            return cached
        return self.to_width(w, self.autocast)

    def linear(self, x: Tensor, w: Tensor, b: Tensor | None = None) -> Tensor:
        """``x @ w.T + b`` with the weight stored as (out, in)."""
        if self.autocast:  # the last argument is cast first: linear(x, w, b), or addmm(b, x, w)
            if b is not None and not self.bias_first:
                b = self.cast_weight(b)
            w = self.cast_weight(w)
            x = self.to_width(x, self.autocast)
            if b is not None and self.bias_first:
                b = self.cast_weight(b)
        self.tape.op = "linear"
        shape = (*x.shape[:-1], w.shape[0])
        rows, inner, outer = x.numel // x.shape[-1], x.shape[-1], w.shape[0]
        if not self.any_requires_grad(x, w, b):
            out = self.new_empty(shape, x.width)
            self.tape.launch_matmul(rows, outer, inner, x.width, 1, outer, inner)
            self.ensure_workspace() if b is None else self.ensure_bias_workspace()
            return out
        self.count_saved()
        if w.requires_grad and x.requires_grad:
            self.count_saved()
        out = self.new_empty(shape, x.width)
        self.tape.launch_matmul(rows, outer, inner, x.width, 1, outer, inner)
        self.ensure_workspace() if b is None else self.ensure_bias_workspace()
        kept = (self.detach(x) if w.requires_grad else None, self.detach(w) if x.requires_grad else None)
        needs = (x.requires_grad, w.requires_grad, b is not None and b.requires_grad)
        x_shape, w_shape, b_shape = x.shape, w.shape, () if b is None else b.shape

        def backward(g: Grads, kept: object = kept) -> tuple[Tensor | None, ...]:
            grad = g[0]
            # Mm computes the second operand's gradient first, addmm the first's.
            order = (1, 0) if not b_shape else (0, 1)
            made: list[Tensor | None] = [None, None]
            for which in order:
                if needs[which]:
                    made[which] = one = self.new_empty((x_shape, w_shape)[which], grad.width)
                    sizes = (outer, inner, rows) if which else (rows, inner, outer)
                    self.tape.launch_matmul(*sizes, grad.width, 1, outer, inner)
                    one.view = True
                    self.ensure_workspace()
            late = (lambda: self.sum_to_shape(grad, b_shape)) if needs[2] else None
            return made[0], made[1], late  # type: ignore[return-value]

        self.add_node(out, "linear", (x, w, b), backward)
        return out

    def matmul(self, a: Tensor, b: Tensor, out_shape: tuple[int, ...], columns: bool = False) -> Tensor:
        """A batched product of two activations. With ``columns`` the second is transposed, and so is its gradient."""
        if self.autocast:
            b = self.to_width(b, self.autocast)
            a = self.to_width(a, self.autocast)
        self.tape.op = "matmul"
        tracked = self.any_requires_grad(a, b)
        if tracked:
            self.count_saved()
        out = self.new_empty(out_shape, a.width)
        out.order = "heads"
        m, n, k = out_shape[-2], out_shape[-1], a.shape[-1]
        batch = out.numel // (m * n)
        self.tape.launch_matmul(m, n, k, a.width, batch, n, k)
        self.ensure_workspace()
        if not tracked:
            return out
        kept = (self.detach(a) if b.requires_grad else None, self.detach(b) if a.requires_grad else None)
        shapes, needs = (a.shape, b.shape), (a.requires_grad, b.requires_grad)
        apart = 1 not in out_shape[:3]

        def backward(g: Grads, kept: object = kept) -> tuple[Tensor | None, ...]:
            if apart and g[0].order != "heads":  # gradient in token order
                self.tape.launch_kernel("spread", g[0].numel, 2 * g[0].numel * g[0].width)
                g[0] = self.new_empty(out_shape, g[0].width)
            grad = g[0]
            made: list[Tensor | None] = [None, None]
            for which in (1, 0):
                if needs[which]:
                    made[which] = one = self.new_empty(shapes[which], grad.width)
                    one.order, one.view = "columns" if columns and which else "heads", True
                    self.tape.launch_matmul(*((k, n, m) if which else (m, k, n)), grad.width, batch, n, k)
                    self.ensure_workspace()
            return tuple(made)

        self.add_node(out, "matmul", (a, b), backward)
        return out

    # ------------------------------------------------------------------------------------ views and copies
    def copy_contiguous(self, x: Tensor, shape: tuple[int, ...], op: str = "contiguous") -> Tensor:
        """Copy densely into another shape or order."""
        self.tape.op = op
        out = self.new_empty(shape, x.width)
        self.tape.launch_kernel("spread", x.numel, 2 * x.numel * x.width)
        if self.any_requires_grad(x):
            old, order = x.shape, x.order

            def backward(g: Grads) -> tuple[Tensor | None, ...]:
                made = view_gradient(g[0], old)
                if g[0].order != "columns":
                    made.order = "" if order else "heads"
                return (made,)

            self.add_node(out, op, (x,), backward)
        return out

    def split_heads(self, x: Tensor, heads: int, size: int) -> Tensor:
        """View (batch, seq, heads x size) as (batch, heads, seq, size). Its gradient must be in token order."""
        return self._view_heads(x, (x.shape[0], heads, x.shape[1], size))

    def split_heads_in_place(self, x: Tensor, heads: int, size: int) -> Tensor:
        """View (batch, seq, heads x size) as (batch, seq, heads, size); the same for its gradient."""
        return self._view_heads(x, (x.shape[0], x.shape[1], heads, size))

    def _view_heads(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        heads, seq = x.shape[2] // shape[3], x.shape[1]
        out = Tensor(x.memory, shape, x.width)
        if self.any_requires_grad(x):
            old = x.shape

            def backward(g: Grads) -> tuple[Tensor | None, ...]:
                grad = g[0]
                if grad.order == "heads" and heads > 1 and seq > 1:
                    self.tape.op = "contiguous"
                    self.tape.launch_kernel("spread", grad.numel, 2 * grad.numel * grad.width)
                    return (self.new_empty(old, grad.width),)
                made = view_gradient(grad, old)
                made.order = ""
                return (made,)

            self.add_node(out, "view", (x,), backward)
        return out

    def swap_seq_and_heads(self, x: Tensor) -> Tensor:
        """View (batch, seq, heads, size) as (batch, heads, seq, size)."""
        batch, seq, heads, size = x.shape
        out = Tensor(x.memory, (batch, heads, seq, size), x.width)
        if self.any_requires_grad(x):
            old = x.shape

            def backward(g: Grads) -> tuple[Tensor | None, ...]:
                made = view_gradient(g[0], old)
                made.order = g[0].order
                return (made,)

            self.add_node(out, "view", (x,), backward)
        return out

    def transpose_matrix(self, x: Tensor) -> Tensor:
        return self._view_as(x, (x.shape[1], x.shape[0]))

    def _view_as(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        out = Tensor(x.memory, shape, x.width)
        if self.any_requires_grad(x):
            old = x.shape
            self.add_node(out, "view", (x,), lambda g: (view_gradient(g[0], old),))
        return out

    def merge_heads(self, x: Tensor) -> Tensor:
        """(batch, heads, seq, size) as (batch, seq, heads x size): a view, or a copy if memory is in head order."""
        batch, heads, seq, size = x.shape
        shape = (batch, seq, heads * size)
        if x.order == "heads" and heads > 1 and seq > 1:
            return self.copy_contiguous(x, shape)
        return self._view_as(x, shape)

    def slice(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        """A view of a part; its gradient is a full tensor of zeros with this part."""
        out = Tensor(x.memory, shape, x.width)
        out.order = x.order
        if self.any_requires_grad(x):
            old, width = x.shape, x.width

            def backward(g: Grads) -> tuple[Tensor | None, ...]:
                made = self.new_empty(old, width)
                made.order = "heads" if len(old) == 4 else ""
                self.tape.launch_kernel("move", made.numel * width)  # zeros
                self.tape.launch_kernel("spread", g[0].numel, 2 * g[0].numel * width)
                return (made,)

            self.add_node(out, "slice", (x,), backward)
        return out

    def cat(self, parts: Sequence[Tensor], shape: tuple[int, ...]) -> Tensor:
        """Concatenate into new memory; each part gets a view of the gradient."""
        self.tape.op = "cat"
        out = self.new_empty(shape, max(p.width for p in parts))
        self.tape.launch_kernel("spread", out.numel, 2 * out.numel * out.width)
        out.order = "heads" if len(shape) == 4 else ""
        if self.any_requires_grad(*parts):
            shapes = tuple(p.shape for p in parts)
            self.add_node(out, "cat", tuple(parts), lambda g: tuple(view_gradient(g[0], s) for s in shapes))
        return out

    def split(self, x: Tensor, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
        """Views of the parts; the backward concatenates their gradients."""
        made = [Tensor(x.memory, s, x.width) for s in shapes]
        if self.any_requires_grad(x):
            old, width = x.shape, x.width

            def backward(g: Grads) -> tuple[Tensor | None, ...]:
                self.tape.op = "cat"
                for index, one in enumerate(g):
                    if one is None:  # a part without a gradient counts as zeros
                        g[index] = self.new(shapes[index], width)
                whole = self.new_empty(old, width)
                self.tape.launch_kernel("spread", whole.numel, 2 * whole.numel * width)
                whole.order = "heads" if len(old) == 4 else ""
                return (whole,)

            self.add_node(made[0], "split", (x,), backward, slots=len(made))
            for slot, part in enumerate(made):
                part.fn, part.slot = made[0].fn, slot
        return made

    # ---------------------------------------------------------------------------------------------- layers
    def embedding(self, ids: int, w: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Rows of a table; the gradient of the table is dense."""
        if self.zero3 is None:
            return self._embed_tokens(ids, w, shape)
        return self.zero3.run_table_module([w], lambda: self._embed_tokens(ids, w, shape))

    def _embed_tokens(self, ids: int, w: Tensor, shape: tuple[int, ...]) -> Tensor:
        self.tape.op = "embedding"
        out = self.new_empty(shape, w.width)
        self.tape.launch_kernel("move", 2 * out.numel * out.width)
        if self.any_requires_grad(w):
            table, width = w.shape, w.width

            def backward(g: Grads) -> tuple[Tensor | None, ...]:
                self.tape.launch_kernel("embedding", ids, table[1], table[0] * table[1] * width, width)
                if ids <= SORT_THRESHOLD or not self.processors:
                    return (self.new_empty(table, width),)
                # The indices are sorted, rows are summed by segment.
                live_buffers = [self.new_scratch(ids * 8) for _ in range(2)]
                made = self.new_empty(table, width)
                segments = ids // 10 + min(ids, table[0])
                live_buffers += [self.new_scratch(8 * ids) for _ in range(3)]
                live_buffers += [self.new_scratch(8 * segments), self.new_scratch(4 * segments * table[1])]
                del live_buffers
                return (made,)

            self.add_node(out, "embedding", (w,), backward)
        return out

    def layer_norm(self, x: Tensor, w: Tensor, b: Tensor | None) -> Tensor:
        """torch's LayerNorm: keeps its input, and mean and deviation of every row."""
        if self.autocast:
            x = self.to_width(x, 4)
        self.tape.op = "layer_norm"
        rows = x.numel // x.shape[-1]
        tracked = self.any_requires_grad(x, w, b)
        if tracked:
            self.count_saved()
        out = self.empty_like(x)
        moments = (self.new_empty((rows,), 4), self.new_empty((rows,), 4))
        self.tape.launch_kernel("spread", x.numel, 2 * x.numel * x.width)
        if tracked:
            self.count_saved()
            needs = (x.requires_grad, w.requires_grad, b is not None and b.requires_grad)
            kept = (self.detach(x), moments)
            shapes = (w.shape, w.width, w.shape if b is None else b.shape)

            def backward(g: Grads, kept: object = kept) -> tuple[Tensor | None, ...]:
                self.tape.launch_kernel("move", 6 * g[0].numel * g[0].width)  # of the input; then of weight and bias
                self.tape.launch_kernel("columns", 2 * g[0].numel * g[0].width)
                made = [self.empty_like(g[0]) if needs[0] else None]
                made += [self.new_empty(shapes[0], shapes[1]) if need else None for need in needs[1:]]
                return tuple(made)

            self.add_node(out, "layer_norm", (x, w, b), backward)
        return out

    def dropout(self, x: Tensor, p: float) -> Tensor:
        """Keeps a mask of one byte per value, also in the first pass of a checkpointed layer."""
        if not p:
            return x
        self.tape.op = "dropout"
        if self.any_requires_grad(x):
            mask = self.new_empty(x.shape, 1)  # allocated first by the kernel
            out = self.empty_like(x)
            self.count_saved()
            self.tape.launch_kernel("spread", x.numel, x.numel * (2 * x.width + 1))

            def backward(g: Grads, kept: Tensor = mask) -> tuple[Tensor | None, ...]:
                self.tape.launch_kernel("spread", g[0].numel, g[0].numel * (2 * g[0].width + 1))
                return (self.empty_like(g[0]),)

            self.add_node(out, "dropout", (x,), backward)
            return out
        mask = self.new_empty(x.shape, 1)
        out = self.empty_like(x)
        self.tape.launch_kernel("spread", x.numel, x.numel * (2 * x.width + 1))
        del mask
        return out
