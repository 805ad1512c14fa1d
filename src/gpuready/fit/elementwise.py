"""Elementwise operations: casts, sums and products, with what their gradients allocate."""

from __future__ import annotations

from math import prod

from gpuready.fit.reduction import scratch_of_sum
from gpuready.fit.tensor import Graph, Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.fit.tensor import Tape

    Grads = list[Tensor]


class Elementwise(Graph):
    """Operations whose output has as many values as their input."""

    def __init__(self, tape: Tape, processors: int) -> None:
        super().__init__(tape)
        self.processors = processors  # multiprocessors of the card; 0 is a CPU

    def like(self, x: Tensor, width: int = 0) -> Tensor:
        """Allocate a tensor of the same shape and memory order."""
        made = self.new(x.shape, width or x.width)
        made.order = x.order
        return made

    def to(self, x: Tensor, width: int) -> Tensor:
        """Cast to another width: a copy, or the tensor itself."""
        if x.width == width:
            return x
        self.tape.op = "to"
        out = self.like(x, width)
        if self.tracked(x):
            old = x.width
            self.tie(out, "to", (x,), lambda g: (self.like(g[0], old),))
        return out

    def unary(
        self,
        x: Tensor,
        op: str,
        keeps: str = "input",
        width: int = 0,
        temporaries: int = 0,
        copies: bool = True,
    ) -> Tensor:
        """One value in, one out. ``keeps`` the input, the result or nothing.

        Its backward allocates ``temporaries``, then the gradient; without ``copies`` the gradient passes
        through.
        """
        self.tape.op = op
        if not self.tracked(x):
            return self.like(x, width)
        if keeps == "input":
            self.keep()
        out = self.like(x, width)
        if keeps == "result":
            self.keep()
        kept = {"input": x, "result": self.detached(out)}.get(keeps)

        def back(g: Grads, kept: Tensor | None = kept) -> tuple[Tensor | None, ...]:
            grad = g[0]
            if not copies:
                return (grad,)
            held = [self.like(grad) for _ in range(temporaries)]
            made = self.like(grad)
            del held
            return (made,)

        self.tie(out, op, (x,), back)
        return out

    def detached(self, x: Tensor) -> Tensor:
        """Return the same memory outside the graph; what a node keeps must not keep the graph alive."""
        made = Tensor(x.memory, x.shape, x.width)
        made.order = x.order
        return made

    def scale(self, x: Tensor, op: str = "mul") -> Tensor:
        """Multiply by, divide by or add a number."""
        return self.unary(x, op, keeps="", copies=op != "add")

    def neg(self, x: Tensor) -> Tensor:
        return self.unary(x, "neg", keeps="")

    def mul(self, a: Tensor, b: Tensor) -> Tensor:
        """Multiply; the smaller operand is broadcast."""
        self.tape.op = "mul"
        big = a if (len(a.shape), a.numel) >= (len(b.shape), b.numel) else b
        width = max(a.width, b.width)
        if not self.tracked(a, b):
            return self.like(big, width)
        if a.needs or b.needs:
            self.keep()
        out = self.like(big, width)
        keep_a = self.detached(a) if b.needs else None
        keep_b = self.detached(b) if a.needs else None
        a_shape, b_shape, needs_a, needs_b = a.shape, b.shape, a.needs, b.needs

        def back(g: Grads, kept: object = (keep_a, keep_b)) -> tuple[Tensor | None, ...]:
            grad = g[0]
            to_b = self.like(grad, width) if needs_b else None
            to_a = self.like(grad, width) if needs_a else None
            return self.later(to_a, a_shape), self.later(to_b, b_shape)

        self.tie(out, "mul", (a, b), back)
        return out

    def add(self, a: Tensor, b: Tensor) -> Tensor:
        self.tape.op = "add"
        big = a if (len(a.shape), a.numel) >= (len(b.shape), b.numel) else b
        out = self.like(big, max(a.width, b.width))
        if self.tracked(a, b):
            a_shape, b_shape, needs_a, needs_b = a.shape, b.shape, a.needs, b.needs

            def back(g: Grads) -> tuple[Tensor | None, ...]:
                first = self.reduced(g[0], a_shape) if needs_a else None
                second = self.reduced(g[0], b_shape) if needs_b else None
                return first, second

            self.tie(out, "add", (a, b), back)
        return out

    def reduced(self, grad: Tensor | None, shape: tuple[int, ...]) -> Tensor | None:
        """Sum a gradient over the broadcast dimensions."""
        if grad is None or prod(shape) == grad.numel:
            return grad
        self.tape.op = "sum"
        made = self.new(shape, grad.width)
        if shape[-1] == grad.shape[-1]:
            buffers = scratch_of_sum(grad.numel // made.numel, made.numel, grad.width, self.processors)
            held = [self.scratch(n) for n in buffers]
            del held
        made.view = True
        return made

    def later(self, grad: Tensor | None, shape: tuple[int, ...]) -> Tensor | None:
        """Do the same after the saved tensors are freed: torch sums to a broadcast operand's shape only then."""
        if grad is None or prod(shape) == grad.numel:
            return grad
        return lambda: self.reduced(grad, shape)  # type: ignore[return-value]

    def mean(self, x: Tensor) -> Tensor:
        """Mean over the last dimension, which is kept."""
        self.tape.op = "mean"
        out = self.new((*x.shape[:-1], 1), x.width)
        if self.tracked(x):
            old = x.shape
            self.tie(out, "mean", (x,), lambda g: (self.new(old, g[0].width),))
        return out
