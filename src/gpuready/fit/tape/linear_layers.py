"""Linear layers: plain, with LoRA, and over a quantised base."""

from math import erfc, exp, pi, sqrt

from gpuready.fit.job.records import FitJob
from gpuready.fit.tape.autograd import Tensor
from gpuready.fit.tape.torch_ops import Grads, TorchOps
from gpuready.fit.tape.weight_shards import new_shard, splits_weights

UNADAPTED_MODULES = ("lm_head",)
QV_MODULE_NAMES = ("q_proj", "v_proj", "c_attn", "qkv_proj")


class LinearLayer:
    """A weight as (out, in), with its bias and adapters."""

    __slots__ = ("a", "b", "bias", "codes", "follows_gate", "packed", "quant", "shape", "weight")

    def __init__(self, weight: Tensor | None, bias: Tensor | None = None) -> None:
        self.weight = weight
        self.bias = bias
        self.a: Tensor | None = None
        self.b: Tensor | None = None
        self.quant = ""
        self.follows_gate = False
        self.packed: Tensor | None = None  # codes of a quantised weight that is sharded
        self.codes: tuple[Tensor, ...] = ()  # codes and scales of a quantised weight
        self.shape = weight.shape if weight is not None else (0, 0)

    def list_tensors(self) -> list[Tensor]:
        """Return its weights, of a quantised one the codes where they are sharded."""
        tensors = (self.weight, self.packed, self.bias, self.a, self.b)
        return [t for t in tensors if t is not None]


class WeightMaker:
    """Creates a model's weights in the order and dtypes of the job, and records which are trained."""

    def __init__(self, ops: TorchOps, job: FitJob, trained: bool = True) -> None:
        self.ops, self.job = ops, job
        self.trains_weights = trained and job.method == "full" and job.task == "train"
        self.trains_adapters = trained and job.method != "full" and job.task == "train"
        self.amp = job.precision.startswith("amp")
        self.width = 2 if job.precision in ("bf16", "fp16") or job.quant else 4
        self.compute_width = 2 if self.amp else self.width  # width of the masks
        self.kbit = bool(job.quant) and job.kbit and job.task == "train"
        self.unquantised_width = 4 if self.kbit else self.width  # width of unquantised weights
        self.sharded = splits_weights(job)
        self.shares: list[Tensor] = []  # shards of frozen weights
        self.trained: list[Tensor] = []
        self.has_own_linears = False  # whether the model's linear layers are of a class that is not quantised
        self.embeddings: list[Tensor] = []
        self.inputs_need_grad = self.trains_adapters and (job.checkpointing != "none" or self.kbit)

    def _new_parameter(self, shape: tuple[int, ...], width: int, trained: bool) -> Tensor:
        tape = self.ops.tape
        kind, tape.kind = tape.kind, "parameters" if self.trains_weights or not trained else "adapters"
        tape.muted = self.sharded
        made = self.ops.new_parameter(shape, width, trained)
        tape.muted = False
        if self.sharded and not trained:
            self.shares.append(new_shard(self.ops, made, self.job))
        tape.kind = kind
        if trained:
            self.trained.append(made)
        return made

    def new_table(self, shape: tuple[int, ...]) -> Tensor:
        made = self._new_parameter(shape, self.unquantised_width, self.trains_weights)
        self.embeddings.append(made)
        return made

    def new_norm(self, shape: tuple[int, ...]) -> Tensor:
        return self._new_parameter(shape, self.unquantised_width, self.trains_weights)

    def new_expert(self, shape: tuple[int, ...]) -> Tensor:
        return self._new_parameter(shape, self.unquantised_width, self.trains_weights)

    def new_expert_adapter(self, shape: tuple[int, ...], rank: int) -> tuple[Tensor, Tensor] | None:
        """Return the adapter of a stack of experts (or of the router), as peft does if all layers are adapted."""
        if not self.trains_adapters or self.job.lora_targets not in ("all", "all-linear"):
            return None
        *experts, out, size = shape
        width, whole = 4 if self.job.lora_dtype == "fp32" else 2, rank * (experts[0] if experts else 1)
        return self._new_parameter((whole, size), width, True), self._new_parameter((out, whole), width, True)

    def new_head(self, size: int, vocabulary: int) -> LinearLayer:
        return LinearLayer(self._new_parameter((vocabulary, size), self.unquantised_width, self.trains_weights))

    def new_linear(self, name: str, size: int, out: int, bias: bool) -> LinearLayer:
        if self.job.quant and name not in UNADAPTED_MODULES and not self.has_own_linears:
            made = self._new_quantised(name, size, out)
        else:
            width = self.unquantised_width if self.has_own_linears else self.width
            made = LinearLayer(self._new_parameter((out, size), width, self.trains_weights))
        if bias:
            made.bias = self._new_parameter(
                (out,), self.unquantised_width if self.job.quant else self.width, self.trains_weights
            )
        if self.trains_adapters and self._is_lora_target(name):
            self._add_lora(made, size, out)
        return made

    def _is_lora_target(self, name: str) -> bool:
        targets = self.job.lora_targets
        if targets in ("all", "all-linear"):
            return name not in UNADAPTED_MODULES
        return name in (QV_MODULE_NAMES if targets == "qv" else targets)

    def _add_lora(self, made: LinearLayer, size: int, out: int) -> None:
        width, rank = 4 if self.job.lora_dtype == "fp32" else 2, self.job.lora_r
        made.a = self._new_parameter((rank, size), width, True)
        made.b = self._new_parameter((out, rank), width, True)

    def _new_quantised(self, name: str, size: int, out: int) -> LinearLayer:
        """Allocate what bitsandbytes keeps of a weight."""
        ops, count = self.ops, size * out
        made = LinearLayer(None)
        made.shape, made.quant = (out, size), self.job.quant
        made.follows_gate = name == "down_proj"
        kind, ops.tape.kind = ops.tape.kind, "parameters"
        if made.quant == "int8":
            made.codes = (ops.new_scratch(count), ops.new_scratch(4 * out))
        else:
            blocks = -(-count // 64)
            codes = [] if self.sharded else [ops.new_scratch(-(-count // 2))]
            if self.sharded:  # a parameter in 16-bit storage; the scales are none, and every rank has all of them
                made.packed = self._new_parameter((-(-count // 4),), 2, False)
            codes.append(ops.new_scratch(64))
            if self.job.double_quant:
                codes += [
                    ops.new_scratch(blocks),
                    ops.new_scratch(4),
                    ops.new_scratch(4 * -(-blocks // 256)),
                    ops.new_scratch(1024),
                ]
            else:
                codes.append(ops.new_scratch(4 * blocks))
            made.codes = tuple(codes)
        ops.tape.kind = kind
        return made


def apply_linear(ops: TorchOps, x: Tensor, linear: LinearLayer) -> Tensor:
    """Run a linear layer: the base, then the adapter as peft adds it."""
    if ops.zero3 is None:
        return _apply_linear(ops, x, linear)
    return ops.zero3.run_module(linear.list_tensors(), lambda y: _apply_linear(ops, y, linear), x)


def _apply_linear(ops: TorchOps, x: Tensor, linear: LinearLayer) -> Tensor:
    if linear.a is None or linear.b is None:
        return _apply_base(ops, x, linear)
    return _apply_quantised_lora(ops, x, linear) if linear.quant else _apply_lora(ops, x, linear)


def _apply_lora(ops: TorchOps, x: Tensor, linear: LinearLayer) -> Tensor:
    """peft's layer over a plain weight: the sum is computed in the adapter's dtype, then cast back."""
    assert linear.a is not None and linear.b is not None
    result = _apply_base(ops, x, linear)
    width = result.width
    inside = ops.to_width(x, linear.a.width)
    dropped = [ops.dropout(inside, ops.lora_dropout)]
    result = ops.add(result, ops.scalar_op(ops.linear(ops.linear(dropped.pop(), linear.a), linear.b)))
    return ops.to_width(result, width)


def _apply_quantised_lora(ops: TorchOps, x: Tensor, linear: LinearLayer) -> Tensor:
    """peft's layer over a quantised weight: under autocast nothing is cast; a 4-bit result is copied first."""
    assert linear.a is not None and linear.b is not None
    result = _apply_base(ops, x, linear)
    if linear.quant != "int8":
        result = ops.unary_op(result, "clone", keeps="", copies=False)
    width = result.width
    inside = x if ops.autocast else ops.to_width(x, linear.a.width)
    output = ops.scalar_op(ops.linear(ops.linear(ops.dropout(inside, ops.lora_dropout), linear.a), linear.b))
    if not ops.autocast:
        output = ops.to_width(output, width)
    result = ops.add(result, output)
    return result


def _apply_base(ops: TorchOps, x: Tensor, linear: LinearLayer) -> Tensor:
    if not linear.quant:
        assert linear.weight is not None
        return ops.linear(x, linear.weight, linear.bias)
    return _int8_linear(ops, x, linear) if linear.quant == "int8" else _four_bit_linear(ops, x, linear)


def dequantise_weight(ops: TorchOps, linear: LinearLayer, width: int) -> Tensor:
    """Dequantise the weight for one product, after the scales of double quantisation."""
    scales = _dequantise_scales(ops, linear)
    made = ops.new_empty(linear.shape, width)
    ops.tape.launch_kernel("dequantise", made.numel, width)
    del scales
    return made


def _dequantise_scales(ops: TorchOps, linear: LinearLayer) -> Tensor | None:
    """Allocate one scale per 64 values, if the scales are quantised."""
    return ops.new_empty((-(-linear.shape[0] * linear.shape[1] // 64),), 4) if ops.double_quant else None


def _four_bit_linear(ops: TorchOps, x: Tensor, linear: LinearLayer) -> Tensor:
    """bitsandbytes' 4-bit product: keeps only the codes, and dequantises again in the backward."""
    inside = ops.to_width(x, ops.compute_width)
    ops.tape.op = "4-bit linear"
    scales = [_dequantise_scales(ops, linear) for _ in range(2)]  # the scales, and the scales with their mean added
    weight = ops.new_empty(linear.shape, ops.compute_width)
    ops.tape.launch_kernel("dequantise", weight.numel, ops.compute_width)
    out = ops.new_empty((*x.shape[:-1], linear.shape[0]), ops.compute_width)
    rows = x.numel // x.shape[-1]
    ops.tape.launch_matmul(rows, *linear.shape, ops.compute_width, 1, *linear.shape)
    ops.ensure_workspace() if linear.bias is None else ops.ensure_bias_workspace()
    del weight, scales
    if ops.any_requires_grad(inside):
        shape = inside.shape
        gathered = ops.zero3.find_gathered(linear.packed) if ops.zero3 is not None else None

        def backward(g: Grads, kept: object = gathered) -> tuple[Tensor | None, ...]:  # DeepSpeed cannot free it before
            weight = dequantise_weight(ops, linear, g[0].width)
            made = ops.new_empty(shape, g[0].width)
            ops.tape.launch_matmul(rows, linear.shape[1], linear.shape[0], g[0].width, 1, *linear.shape)
            ops.ensure_workspace()
            del weight
            made.view = True
            return (made,)

        ops.add_node(out, "4-bit linear", (inside,), backward)
    made = ops.to_width(out, x.width)
    del out
    return made


def _int8_linear(ops: TorchOps, x: Tensor, linear: LinearLayer) -> Tensor:
    """bitsandbytes' 8-bit product: the input is quantised by row in fp16. Its input outlives any checkpoint."""
    ops.tape.op = "8-bit linear"
    rows, shape = x.numel // x.shape[-1], (*x.shape[:-1], linear.shape[0])
    half = ops.new_empty(x.shape, 2)
    scales, codes = ops.new_empty((rows,), 4), ops.new_empty(x.shape, 1)
    large, marks = ops.new_empty(x.shape, 2), ops.new_empty(x.shape, 1)
    del large, marks, half
    columns = count_outlier_columns(linear, rows)
    beside, part = None, None
    if columns:
        beside = ops.new_empty((rows, columns), x.width)
        few = ops.new_empty((linear.shape[0], columns), 1)
        wide = ops.new_empty((linear.shape[0], columns), 4)
        part = ops.new_empty((linear.shape[0], columns), x.width)
        del few, wide
    sums = ops.new_empty(shape, 4)
    for _ in range(3):  # the scale of every row, the codes, the outliers
        ops.tape.launch_kernel("move", 3 * x.numel * x.width)
    ops.tape.launch_matmul(rows, *linear.shape, 1, 1, *linear.shape)
    ops.tape.launch_kernel("move", sums.numel * (4 + x.width))
    product = ops.new_empty(shape, 2)
    out = product if ops.half_is_fp16 else ops.new_empty(shape, x.width)
    del sums, product
    if part is not None:
        out = ops.new_empty(shape, x.width)
    del part, codes, scales
    if ops.checkpoint_survivors is not None:
        ops.checkpoint_survivors += [ops.detach(x)] if beside is None else [ops.detach(x), beside]
    if ops.any_requires_grad(x):
        inner, width = x.shape, x.width

        def backward(g: Grads, kept: object = (ops.detach(x), beside)) -> tuple[Tensor | None, ...]:
            weight = ops.new_empty(linear.shape, width)
            ops.tape.launch_kernel("dequantise", weight.numel, width)
            made = ops.new_empty(inner, width)
            ops.tape.launch_matmul(rows, linear.shape[1], linear.shape[0], width, 1, *linear.shape)
            ops.ensure_workspace()
            del weight
            made.view = True
            return (made,)

        ops.add_node(out, "8-bit linear", (x,), backward)
    return out


def count_outlier_columns(linear: LinearLayer, rows: int) -> int:
    """Return the number of input columns of a gated down projection with a value over bitsandbytes' threshold
    of 6.

    It depends on the data. This is the expectation for weights of the usual initial spread: the product of
    silu(g) and u, both normal.
    """
    if not linear.follows_gate:
        return 0
    spread, cells, chance = 0.02 * sqrt(linear.shape[0]), 200, 0.0
    for cell in range(cells):
        g = spread * (12 * (cell + 0.5) / cells - 6)
        share = exp(-g * g / (2 * spread * spread)) / (spread * sqrt(2 * pi)) * 12 * spread / cells
        factor = abs(g / (1 + exp(-g)))
        if factor > 1e-9:
            chance += share * erfc(6 / (factor * spread * sqrt(2)))
    return int(linear.shape[1] * (1 - (1 - min(chance, 1.0)) ** rows))
