"""Elementwise operations: casts, sums and products, with what their gradients allocate."""

from math import prod

from gpuready.fit.tape.autograd import AutogradGraph, Tape, Tensor

Grads = list[Tensor]


class ElementwiseOps(AutogradGraph):
    """Operations whose output has as many values as their input."""

    def __init__(self, tape: Tape, processors: int) -> None:
        super().__init__(tape)
        self.processors = processors  # multiprocessors of the card; 0 is a CPU

    def empty_like(self, x: Tensor, width: int = 0) -> Tensor:
        """Allocate a tensor of the same shape and memory order."""
        made = self.new_empty(x.shape, width or x.width)
        made.order = x.order
        return made

    def to_width(self, x: Tensor, width: int) -> Tensor:
        """Cast to another width: a copy, or the tensor itself."""
        if x.width == width:
            return x
        self.tape.op = "to"
        out = self.empty_like(x, width)
        self.launch_cast(x.numel, x.width, width)
        if self.any_requires_grad(x):
            old = x.width
            self.add_node(out, "to", (x,), lambda g: (self.cast_gradient(g[0], old),))
        return out

    def unary_op(
        self, x: Tensor, op: str, keeps: str = "input", width: int = 0, temporaries: int = 0, copies: bool = True
    ) -> Tensor:
        """One value in, one out. ``keeps`` the input, the result or nothing.

        Its backward allocates ``temporaries``, then the gradient; without ``copies`` the gradient passes
        through.
        """
        self.tape.op = op
        if not self.any_requires_grad(x):
            self.tape.launch_kernel("move", 2 * x.numel * x.width)
            return self.empty_like(x, width)
        if keeps == "input":
            self.count_saved()
        out = self.empty_like(x, width)
        self.tape.launch_kernel("move", 2 * x.numel * x.width)
        if keeps == "result":
            self.count_saved()
        kept = {"input": x, "result": self.detach(out)}.get(keeps)

        def backward(g: Grads, kept: Tensor | None = kept) -> tuple[Tensor | None, ...]:
            grad = g[0]
            if not copies:
                return (grad,)
            live_buffers = [self.empty_like(grad) for _ in range(temporaries)]
            made = self.empty_like(grad)
            del live_buffers
            size = grad.numel * grad.width
            for _ in range(temporaries):
                self.tape.launch_kernel("move", 2 * size)
            self.tape.launch_kernel("move", (3 if keeps else 2) * size)
            return (made,)

        self.add_node(out, op, (x,), backward)
        return out

    def detach(self, x: Tensor) -> Tensor:
        """Return the same memory outside the graph; what a node keeps must not keep the graph alive."""
        made = Tensor(x.memory, x.shape, x.width)
        made.order = x.order
        return made

    def scalar_op(self, x: Tensor, op: str = "mul") -> Tensor:
        """Multiply by, divide by or add a number."""
        return self.unary_op(x, op, keeps="", copies=op != "add")

    def neg(self, x: Tensor) -> Tensor:
        return self.unary_op(x, "neg", keeps="")

    def mul(self, a: Tensor, b: Tensor) -> Tensor:
        """Multiply; the smaller operand is broadcast."""
        self.tape.op = "mul"
        big = a if (len(a.shape), a.numel) >= (len(b.shape), b.numel) else b
        width = max(a.width, b.width)
        if not self.any_requires_grad(a, b):
            self._launch_product(a, b)
            return self.empty_like(big, width)
        if a.requires_grad or b.requires_grad:
            self.count_saved()
        out = self.empty_like(big, width)
        self._launch_product(a, b)
        keep_a = self.detach(a) if b.requires_grad else None
        keep_b = self.detach(b) if a.requires_grad else None
        a_shape, b_shape, needs_a, needs_b = a.shape, b.shape, a.requires_grad, b.requires_grad

        def backward(g: Grads, kept: object = (keep_a, keep_b)) -> tuple[Tensor | None, ...]:
            grad = g[0]
            to_b = self.empty_like(grad, width) if needs_b else None
            if needs_b:
                self._launch_product(grad, Tensor(None, a_shape, width))
            to_a = self.empty_like(grad, width) if needs_a else None
            if needs_a:
                self._launch_product(grad, Tensor(None, b_shape, width))
            return self.sum_to_shape_later(to_a, a_shape), self.sum_to_shape_later(to_b, b_shape)

        self.add_node(out, "mul", (a, b), backward)
        return out

    def _launch_product(self, a: Tensor, b: Tensor) -> None:
        """Record a kernel of two operands: one that is broadcast, in another order or of another type is read value by
        value.
        """
        whole, moved = max(a.numel, b.numel), a.numel * a.width + b.numel * b.width
        moved += whole * max(a.width, b.width)
        if a.width != b.width:
            self.tape.launch_kernel("mixed", whole, moved)
        elif a.numel == b.numel and a.order == b.order:
            self.tape.launch_kernel("move", moved)
        else:
            self.tape.launch_kernel("spread", whole, moved)

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        self.tape.op = "add"
        big = a if (len(a.shape), a.numel) >= (len(b.shape), b.numel) else b
        out = self.empty_like(big, max(a.width, b.width))
        self._launch_product(a, b)
        if self.any_requires_grad(a, b):
            a_shape, b_shape, needs_a, needs_b = a.shape, b.shape, a.requires_grad, b.requires_grad

            def backward(g: Grads) -> tuple[Tensor | None, ...]:
                first = self.sum_to_shape(g[0], a_shape) if needs_a else None
                second = self.sum_to_shape(g[0], b_shape) if needs_b else None
                return first, second

            self.add_node(out, "add", (a, b), backward)
        return out

    def sum_to_shape(self, grad: Tensor | None, shape: tuple[int, ...]) -> Tensor | None:
        """Sum a gradient over the broadcast dimensions."""
        if grad is None or prod(shape) == grad.numel:
            return grad
        self.tape.op = "sum"
        made = self.new_empty(shape, grad.width)
        self.tape.launch_kernel("columns" if shape[-1] == grad.shape[-1] else "rows", grad.numel * grad.width)
        if shape[-1] == grad.shape[-1]:
            buffers = sum_scratch_sizes(grad.numel // made.numel, made.numel, grad.width, self.processors)
            live_buffers = [self.new_scratch(n) for n in buffers]
            del live_buffers
        made.view = True
        return made

    def sum_to_shape_later(self, grad: Tensor | None, shape: tuple[int, ...]) -> Tensor | None:
        """Do the same after the saved tensors are freed: torch sums to a broadcast operand's shape only then."""
        if grad is None or prod(shape) == grad.numel:
            return grad
        return lambda: self.sum_to_shape(grad, shape)  # type: ignore[return-value]

    def mean(self, x: Tensor) -> Tensor:
        """Mean over the last dimension, which is kept."""
        self.tape.op = "mean"
        out = self.new_empty((*x.shape[:-1], 1), x.width)
        self.tape.launch_kernel("rows", x.numel * x.width)
        if self.any_requires_grad(x):
            old = x.shape

            def backward(g: Grads) -> tuple[Tensor | None, ...]:
                self.tape.launch_kernel("spread", prod(old), prod(old) * g[0].width)
                return (self.new_empty(old, g[0].width),)

            self.add_node(out, "mean", (x,), backward)
        return out


MAX_THREADS = 512
THREADS_PER_PROCESSOR = 2048
MIN_VALUES_PER_THREAD, MAX_VALUES_PER_THREAD = 16, 256  # values summed per thread: at least, at most


def _floor_power_of_two(n: int) -> int:
    return 1 << (max(n, 1).bit_length() - 1)


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def sum_scratch_sizes(rows: int, columns: int, width: int, processors: int) -> list[int]:
    """Return the scratch sizes in bytes for a sum over ``rows`` into ``columns``, contiguous along the columns."""
    vector = next(v for v in (4, 2, 1) if columns % v == 0)
    most = MAX_THREADS // vector
    across, down = min(_floor_power_of_two(columns // vector), most), min(_floor_power_of_two(rows), most)
    wide = min(across, 32)
    high = min(down, most // wide)
    wide = min(across, most // high)
    per_thread = rows
    if not (per_thread >= high * MIN_VALUES_PER_THREAD or per_thread >= MAX_VALUES_PER_THREAD):
        return []
    per_thread = _ceil_div(per_thread, high)
    grid = _ceil_div(columns // vector, wide)
    target = processors * (THREADS_PER_PROCESSOR // (wide * high))
    if per_thread < MAX_VALUES_PER_THREAD or grid > target:
        return []
    blocks = max(
        min(_ceil_div(target, grid), _ceil_div(per_thread, MIN_VALUES_PER_THREAD)),
        _ceil_div(per_thread, MAX_VALUES_PER_THREAD),
    )
    if blocks <= 1:
        return []
    return [4 * columns * blocks * wide * vector, 4 * grid]
