"""Optimizers: the state that they make at the first step, and what a step asks for beside it."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from tarmac.fit.ops import Ops
    from tarmac.fit.tensor import Tensor

CHUNK = 65536  # values that one block of a multi-tensor kernel takes
EIGHT_BIT_FROM = 4096  # smaller parameters keep 32-bit state
BLOCKS = 132 * 16  # of 128 threads that a Hopper GPU runs at once


class Optimizer:
    """The optimizer of a job over its trained parameters."""

    def __init__(self, ops: Ops, name: str, parameters: list[Tensor], wide_tables: list[Tensor]) -> None:
        self.ops, self.name = ops, name
        self.parameters = parameters
        self.tables = {id(t) for t in wide_tables}
        self.state: list[Tensor] = []
        self.width = 0  # of the state where it is not the parameter's own
        self.flat = 0  # values of the one gradient that is stepped over, where it is not the parameters' own
        self.elsewhere = False  # state and step are the host's

    def step(self) -> None:
        ops = self.ops
        if self.elsewhere:
            return
        kind, ops.tape.kind = ops.tape.kind, "optimizer"
        ops.tape.op = f"{self.name} step"
        joined = ops.scratch(2 * self.flat)
        wide = ops.scratch(4 * self.flat)
        del joined
        if self.flat:
            self.zero()
        _STEPS[self.name](self)
        del wide
        ops.tape.kind = kind

    def keep(self, shape: tuple[int, ...], width: int) -> None:
        self.state.append(self.new(shape, width))

    def new(self, shape: tuple[int, ...], width: int) -> Tensor:
        """A tensor as large as a parameter."""
        return self.ops.new(shape, self.width if self.width and width == 2 else width)

    def clip(self) -> None:
        """The norm of all gradients: one number for each, and partial sums."""
        ops = self.ops
        kind, ops.tape.kind = ops.tape.kind, "optimizer"
        ops.tape.op = "clip_grad_norm"
        for width in (2, 4):
            grads = [p.grad for p in self.parameters if p.grad is not None and p.grad.width == width]
            if grads:
                chunks = max(-(-g.numel // CHUNK) for g in grads)
                partial = ops.new((len(grads), chunks), 4)
                norms = [ops.new((), width) for _ in grads]
                del partial
                stacked = ops.new((len(grads),), width)
                del norms, stacked
        ops.tape.kind = kind

    def zero(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None


def _adamw(self: Optimizer) -> None:
    if not self.state:
        for p in self.parameters:
            self.keep(p.shape, p.width)
            self.keep(p.shape, p.width)
    held = [self.new(p.shape, p.width) for p in self.parameters]
    while held:
        held.pop()


def _adamw_fused(self: Optimizer) -> None:
    if not self.state:
        for p in self.parameters:
            self.keep((), 4)
            self.keep(p.shape, p.width)
            self.keep(p.shape, p.width)


def _adamw_forloop(self: Optimizer) -> None:
    first = not self.state
    for p in self.parameters:
        if first:
            self.keep(p.shape, p.width)
            self.keep(p.shape, p.width)
    for p in self.parameters:
        root = self.new(p.shape, p.width)
        quotient = self.new(p.shape, p.width)
        del root, quotient


def _sgd(self: Optimizer) -> None:
    return None


def _sgd_momentum(self: Optimizer) -> None:
    if not self.state:
        for p in self.parameters:
            self.keep(p.shape, p.width)


def _adafactor(self: Optimizer) -> None:
    """transformers': in fp32, factored over the last two dimensions."""
    ops, first = self.ops, not self.state
    for p in self.parameters:
        factored = len(p.shape) >= 2
        grad = ops.new(p.shape, 4) if p.width != 4 else None
        if first:
            if factored:
                self.keep(p.shape[:-1], 4)
                self.keep((*p.shape[:-2], p.shape[-1]), 4)
            else:
                self.keep(p.shape, 4)
        _adafactor_one(ops, p, factored)
        del grad


def _adafactor_one(ops: Ops, p: Tensor, factored: bool) -> None:
    """The temporaries of one parameter."""
    wide = ops.new(p.shape, 4) if p.width != 4 else None
    squared = ops.new(p.shape, 4)
    update = ops.new(p.shape, 4)
    del squared
    if factored:
        rows, columns = ops.new(p.shape[:-1], 4), ops.new(p.shape[-1:], 4)
        grown = ops.new(p.shape, 4)
        del update
        update = ops.new(p.shape, 4)
        del grown, rows, columns
    else:
        root = ops.new(p.shape, 4)
        del root
    del update, wide


def _adafactor_torch(self: Optimizer) -> None:
    """torch's: in the parameter's type, one parameter after the other; the names of the last one live until the next has its own."""
    ops, first = self.ops, not self.state
    if first:
        for p in self.parameters:
            if len(p.shape) > 1:
                self.keep(p.shape[:-1], p.width)
                self.keep((*p.shape[:-2], p.shape[-1]), p.width)
            else:
                self.keep(p.shape, p.width)
    rows = columns = squared = estimate = None
    for p in self.parameters:
        if len(p.shape) > 1:
            rows = self.new(p.shape[:-1], p.width)
            columns = self.new((*p.shape[:-2], p.shape[-1]), p.width)
            partial = ops.scratch(_column_sums(p.shape))
            del partial
        else:
            squared = self.new(p.shape, p.width)
        estimate = self.new(p.shape, p.width)
    del rows, columns, squared, estimate


def _column_sums(shape: tuple[int, ...]) -> int:
    """Bytes that torch's reduction over the rows of a matrix asks for, where it shares them out among blocks.

    A block of 32 x 4 threads takes 128 columns; where each thread has many rows, more blocks take a part of them each.
    """
    columns = 1
    for size in (*shape[:-2], shape[-1]):
        columns *= size
    each, grid = shape[-2] // 4, max(1, columns // 128)
    if each < 256 or grid > BLOCKS:
        return 0
    parts = max(min(-(-BLOCKS // grid), -(-each // 16)), -(-each // 256))
    return 4 * 128 * columns * parts if parts > 1 else 0


def _adamw_8bit(self: Optimizer) -> None:
    """bitsandbytes': codes of one byte with a scale per 256 values; small ones and embeddings stay in 32 bit."""
    if self.state:
        return
    for p in self.parameters:
        if p.numel < EIGHT_BIT_FROM or id(p) in self.tables:
            self.keep(p.shape, 4)
            self.keep(p.shape, 4)
            continue
        self.keep(p.shape, 1)
        self.keep(p.shape, 1)
        blocks = -(-p.numel // 256)
        self.keep((blocks,), 4)
        self.keep((blocks,), 4)


def _paged(self: Optimizer) -> None:
    """Paged state lives in managed memory, which the allocator does not see; only the small ones are its own."""
    if self.state:
        return
    for p in self.parameters:
        blocks = -(-p.numel // 256)
        self.keep((blocks,), 4)
        self.keep((blocks,), 4)


_STEPS: dict[str, Callable[[Optimizer], None]] = {
    "adamw": _adamw,
    "adamw_fused": _adamw_fused,
    "adamw_forloop": _adamw_forloop,
    "sgd": _sgd,
    "sgd_momentum": _sgd_momentum,
    "adafactor": _adafactor,
    "adafactor_torch": _adafactor_torch,
    "adamw_8bit": _adamw_8bit,
    "paged_adamw_8bit": _paged,
    "paged_adamw": _paged,
}
