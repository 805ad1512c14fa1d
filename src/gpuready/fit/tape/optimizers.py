"""Optimizers: the state created at the first step, and the temporary memory of each step."""

from collections.abc import Callable

from gpuready.fit.tape.autograd import Tensor
from gpuready.fit.tape.elementwise_ops import sum_scratch_sizes
from gpuready.fit.tape.torch_ops import TorchOps

MULTI_TENSOR_CHUNK = 65536  # values per block of a multi-tensor kernel
MIN_8BIT_SIZE = 4096  # smaller parameters keep 32-bit state
MIN_PAGED_SIZE = 100_000  # smaller parameters keep their state on the GPU


class JobOptimizer:
    """The optimizer of a job over its trained parameters."""

    def __init__(self, ops: TorchOps, name: str, parameters: list[Tensor], wide_tables: list[Tensor]) -> None:
        self.ops, self.name = ops, name
        self.parameters = parameters
        self.wide_table_ids = {id(t) for t in wide_tables}
        self.state: list[Tensor] = []
        self.on_host = False  # state and step are on the host

    def step(self) -> None:
        ops = self.ops
        if self.on_host:
            return
        kind, ops.tape.kind = ops.tape.kind, "optimizer"
        ops.tape.op = f"{self.name} step"
        _STEP_FUNCTIONS[self.name](self)
        for width in (2, 4):
            sizes = [p.numel for p in self.parameters if p.width == width]
            if sizes:
                ops.tape.launch_kernel("optimizer", self.name, sum(sizes), width, len(sizes))
        ops.tape.kind = kind

    def add_state(self, shape: tuple[int, ...], width: int) -> None:
        self.state.append(self.ops.new_empty(shape, width))

    def _add_factored_state(self, shape: tuple[int, ...], width: int) -> None:
        """Add Adafactor's state: rows and columns of a matrix, or a full vector."""
        if len(shape) > 1:
            self.add_state(shape[:-1], width)
            self.add_state((*shape[:-2], shape[-1]), width)
        else:
            self.add_state(shape, width)

    def clip_gradients(self) -> None:
        """Compute the norm of all gradients: one value each, and partial sums."""
        ops = self.ops
        kind, ops.tape.kind = ops.tape.kind, "optimizer"
        ops.tape.op = "clip_grad_norm"
        for width in (2, 4):
            grads = [p.grad for p in self.parameters if p.grad is not None and p.grad.width == width]
            if grads:
                chunks = max(-(-g.numel // MULTI_TENSOR_CHUNK) for g in grads)
                ops.tape.launch_kernel("optimizer", "clip", sum(g.numel for g in grads), width, len(grads))
                partial = ops.new_empty((len(grads), chunks), 4)
                norms = [ops.new_empty((), width) for _ in grads]
                del partial
                stacked = ops.new_empty((len(grads),), width)
                del norms, stacked
        ops.tape.kind = kind

    def zero_grad(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None


def _step_adamw(self: JobOptimizer) -> None:
    if not self.state:
        for p in self.parameters:
            self.add_state(p.shape, p.width)
            self.add_state(p.shape, p.width)
    live_buffers = [self.ops.new_empty(p.shape, p.width) for p in self.parameters]
    while live_buffers:
        live_buffers.pop()


def _step_adamw_fused(self: JobOptimizer) -> None:
    if not self.state:
        for p in self.parameters:
            self.add_state((), 4)
            self.add_state(p.shape, p.width)
            self.add_state(p.shape, p.width)


def _step_adamw_forloop(self: JobOptimizer) -> None:
    first = not self.state
    for p in self.parameters:
        if first:
            self.add_state(p.shape, p.width)
            self.add_state(p.shape, p.width)
    denominator = None
    for p in self.parameters:
        root = self.ops.new_empty(p.shape, p.width)
        quotient = self.ops.new_empty(p.shape, p.width)
        del root
        denominator = quotient  # a variable that lives until the next parameter reassigns it
        del quotient
    del denominator


def _step_sgd(self: JobOptimizer) -> None:
    return None


def _step_sgd_momentum(self: JobOptimizer) -> None:
    if not self.state:
        for p in self.parameters:
            self.add_state(p.shape, p.width)


def _step_adafactor(self: JobOptimizer) -> None:
    """transformers' Adafactor: in fp32, factored over the last two dimensions.

    Intermediates of one parameter are freed when the next one reassigns the variable; also in torch's variant
    below.
    """
    ops, first = self.ops, not self.state
    grad = wide = update = None
    for p in self.parameters:
        grad = ops.new_empty(p.shape, 4) if p.width != 4 else None
        if first:
            self._add_factored_state(p.shape, 4)
        wide = ops.new_empty(p.shape, 4) if p.width != 4 else None
        squared = ops.new_empty(p.shape, 4)
        update = ops.new_empty(p.shape, 4)  # the square plus epsilon
        del squared
        if len(p.shape) >= 2:
            _row_and_column_means(ops, p.shape, 4)
            factors = (ops.new_empty(p.shape[:-1], 4), ops.new_empty((*p.shape[:-2], p.shape[-1]), 4))
            made = ops.new_empty(p.shape, 4)
            del factors
            update = made
            del made
        else:
            update = ops.new_empty(p.shape, 4)
        minus = ops.new_empty(p.shape, 4)
        del minus
    del grad, wide, update


def _step_adafactor_torch(self: JobOptimizer) -> None:
    """torch's Adafactor: in the parameter's dtype, one parameter after the other."""
    ops = self.ops
    if not self.state:
        for p in self.parameters:
            self._add_factored_state(p.shape, p.width)
    rows = columns = squared = estimate = None
    for p in self.parameters:
        if len(p.shape) > 1:
            rows = ops.new_empty(p.shape[:-1], p.width)
            columns = ops.new_empty((*p.shape[:-2], p.shape[-1]), p.width)
            _column_sum_scratch(ops, p.shape, p.width)
        else:
            squared = ops.new_empty(p.shape, p.width)
        estimate = ops.new_empty(p.shape, p.width)
    del rows, columns, squared, estimate


def _row_and_column_means(ops: TorchOps, shape: tuple[int, ...], width: int) -> None:
    """Allocate the means of every row, then of every column."""
    rows = ops.new_empty(shape[:-1], width)
    del rows
    columns = ops.new_empty((*shape[:-2], shape[-1]), width)
    _column_sum_scratch(ops, shape, width)
    del columns


def _column_sum_scratch(ops: TorchOps, shape: tuple[int, ...], width: int) -> None:
    """Allocate the scratch of a sum over the rows of each column."""
    columns = 1
    for size in (*shape[:-2], shape[-1]):
        columns *= size
    buffers = [ops.new_scratch(size) for size in sum_scratch_sizes(shape[-2], columns, width, ops.processors)]
    del buffers


def _step_adamw_8bit(self: JobOptimizer) -> None:
    """bitsandbytes' 8-bit AdamW: one-byte codes with a scale per 256 values; small tensors and embeddings in 32 bit."""
    _add_bnb_state(self, eight=True, paged=False)


def _step_paged_8bit(self: JobOptimizer) -> None:
    _add_bnb_state(self, eight=True, paged=True)


def _step_paged(self: JobOptimizer) -> None:
    _add_bnb_state(self, eight=False, paged=True)


def _add_bnb_state(self: JobOptimizer, eight: bool, paged: bool) -> None:
    """Add two states per parameter. Paged ones are in managed memory, which the allocator does not see, except
    small ones.
    """
    if self.state:
        return
    for p in self.parameters:
        codes = eight and p.numel >= MIN_8BIT_SIZE and id(p) not in self.wide_table_ids
        if not paged or p.numel < MIN_PAGED_SIZE:
            self.add_state(p.shape, 1 if codes else 4)
            self.add_state(p.shape, 1 if codes else 4)
        if codes:
            blocks = -(-p.numel // 256)
            self.add_state((blocks,), 4)
            self.add_state((blocks,), 4)


_STEP_FUNCTIONS: dict[str, Callable[[JobOptimizer], None]] = {
    "adamw": _step_adamw,
    "adamw_fused": _step_adamw_fused,
    "adamw_forloop": _step_adamw_forloop,
    "sgd": _step_sgd,
    "sgd_momentum": _step_sgd_momentum,
    "adafactor": _step_adafactor,
    "adafactor_torch": _step_adafactor_torch,
    "adamw_8bit": _step_adamw_8bit,
    "paged_adamw_8bit": _step_paged_8bit,
    "paged_adamw": _step_paged,
}
