"""Optimizers: the state created at the first step, and the temporary memory of each step."""

from __future__ import annotations

from gpuready.fit.reduction import scratch_of_sum

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from gpuready.fit.ops import Ops
    from gpuready.fit.tensor import Tensor

CHUNK = 65536  # values per block of a multi-tensor kernel
EIGHT_BIT_FROM = 4096  # smaller parameters keep 32-bit state
PAGED_FROM = 100_000  # smaller parameters keep their state on the GPU


class Optimizer:
    """The optimizer of a job over its trained parameters."""

    def __init__(self, ops: Ops, name: str, parameters: list[Tensor], wide_tables: list[Tensor]) -> None:
        self.ops, self.name = ops, name
        self.parameters = parameters
        self.tables = {id(t) for t in wide_tables}
        self.state: list[Tensor] = []
        self.width = 0  # width of the state if it is not the parameter's
        self.flat = 0  # values of one flat gradient, if the step uses one
        self.elsewhere = False  # state and step are on the host

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
        """Allocate a tensor as large as a parameter."""
        return self.ops.new(shape, self.width if self.width and width == 2 else width)

    def _factors(self, shape: tuple[int, ...], width: int) -> None:
        """Add Adafactor's state: rows and columns of a matrix, or a full vector."""
        if len(shape) > 1:
            self.keep(shape[:-1], width)
            self.keep((*shape[:-2], shape[-1]), width)
        else:
            self.keep(shape, width)

    def clip(self) -> None:
        """Compute the norm of all gradients: one value each, and partial sums."""
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
    denominator = None
    for p in self.parameters:
        root = self.new(p.shape, p.width)
        quotient = self.new(p.shape, p.width)
        del root
        denominator = quotient  # a variable that lives until the next parameter reassigns it
        del quotient
    del denominator


def _sgd(self: Optimizer) -> None:
    return None


def _sgd_momentum(self: Optimizer) -> None:
    if not self.state:
        for p in self.parameters:
            self.keep(p.shape, p.width)


def _adafactor(self: Optimizer) -> None:
    """transformers' Adafactor: in fp32, factored over the last two dimensions.

    Intermediates of one parameter are freed when the next one reassigns the variable; also in torch's variant
    below.
    """
    ops, first = self.ops, not self.state
    grad = wide = update = None
    for p in self.parameters:
        grad = ops.new(p.shape, 4) if p.width != 4 else None
        if first:
            self._factors(p.shape, 4)
        wide = ops.new(p.shape, 4) if p.width != 4 else None
        squared = ops.new(p.shape, 4)
        update = ops.new(p.shape, 4)  # the square plus epsilon
        del squared
        if len(p.shape) >= 2:
            _means(ops, p.shape, 4)
            factors = _row_and_column(ops, p.shape, 4)
            made = ops.new(p.shape, 4)
            del factors
            update = made
            del made
        else:
            update = ops.new(p.shape, 4)
        minus = ops.new(p.shape, 4)
        del minus
    del grad, wide, update


def _adafactor_torch(self: Optimizer) -> None:
    """torch's Adafactor: in the parameter's dtype, one parameter after the other."""
    ops = self.ops
    if not self.state:
        for p in self.parameters:
            self._factors(p.shape, p.width)
    rows = columns = squared = estimate = None
    for p in self.parameters:
        if len(p.shape) > 1:
            rows = ops.new(p.shape[:-1], p.width)
            columns = ops.new((*p.shape[:-2], p.shape[-1]), p.width)
            _summed(ops, p.shape, p.width)
        else:
            squared = ops.new(p.shape, p.width)
        estimate = ops.new(p.shape, p.width)
    del rows, columns, squared, estimate


def _row_and_column(ops: Ops, shape: tuple[int, ...], width: int) -> tuple[Tensor, Tensor]:
    return ops.new(shape[:-1], width), ops.new((*shape[:-2], shape[-1]), width)


def _means(ops: Ops, shape: tuple[int, ...], width: int) -> None:
    """Allocate the means of every row, then of every column."""
    rows = ops.new(shape[:-1], width)
    del rows
    columns = ops.new((*shape[:-2], shape[-1]), width)
    _summed(ops, shape, width)
    del columns


def _summed(ops: Ops, shape: tuple[int, ...], width: int) -> None:
    """Allocate the scratch of a sum over the rows of each column."""
    columns = 1
    for size in (*shape[:-2], shape[-1]):
        columns *= size
    buffers = [ops.scratch(size) for size in scratch_of_sum(shape[-2], columns, width, ops.processors)]
    del buffers


def _adamw_8bit(self: Optimizer) -> None:
    """bitsandbytes' 8-bit AdamW: one-byte codes with a scale per 256 values; small tensors and embeddings in 32 bit."""
    _states(self, eight=True, paged=False)


def _paged_8bit(self: Optimizer) -> None:
    _states(self, eight=True, paged=True)


def _paged(self: Optimizer) -> None:
    _states(self, eight=False, paged=True)


def _states(self: Optimizer, eight: bool, paged: bool) -> None:
    """Add two states per parameter. Paged ones are in managed memory, which the allocator does not see, except
    small ones.
    """
    if self.state:
        return
    for p in self.parameters:
        codes = eight and p.numel >= EIGHT_BIT_FROM and id(p) not in self.tables
        if not paged or p.numel < PAGED_FROM:
            self.keep(p.shape, 1 if codes else 4)
            self.keep(p.shape, 1 if codes else 4)
        if codes:
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
    "paged_adamw_8bit": _paged_8bit,
    "paged_adamw": _paged,
}
