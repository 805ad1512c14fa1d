"""Linear layers: plain, with LoRA, and over a quantised base."""

from __future__ import annotations

from gpuready.fit.reduction import scratch_of_sum
from gpuready.fit.sharding import splits_weights
from gpuready.fit.tensor import FIRST, Node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.fit.job import Job
    from gpuready.fit.ops import Grads, Ops
    from gpuready.fit.tensor import Tensor

NOT_ADAPTED = ("lm_head", "embed_out")
QV = ("q_proj", "v_proj", "query_key_value", "c_attn", "qkv_proj")


class Linear:
    """A weight as (out, in), with its bias and adapters."""

    __slots__ = ("a", "b", "bias", "codes", "follows_gate", "magnitude", "quant", "shape", "weight")

    def __init__(self, weight: Tensor | None, bias: Tensor | None = None) -> None:
        self.weight = weight
        self.bias = bias
        self.a: Tensor | None = None
        self.b: Tensor | None = None
        self.magnitude: Tensor | None = None
        self.quant = ""
        self.follows_gate = False
        self.codes: tuple[Tensor, ...] = ()  # codes and scales of a quantised weight
        self.shape = weight.shape if weight is not None else (0, 0)

    def tensors(self) -> list[Tensor]:
        """Return its unquantised weights."""
        return [t for t in (self.weight, self.bias, self.a, self.b, self.magnitude) if t is not None]


class Maker:
    """Creates a model's weights in the order and dtypes of the job, and records which are trained."""

    def __init__(self, ops: Ops, job: Job, trained: bool = True) -> None:
        self.ops, self.job = ops, job
        self.full = trained and job.method == "full" and job.task == "train"
        self.adapted = trained and job.method != "full" and job.task == "train"
        self.amp = job.precision.startswith("amp")
        self.width = 2 if job.precision in ("bf16", "fp16") or job.quant else 4
        self.compute = 2 if self.amp else self.width  # width of the masks
        self.kbit = bool(job.quant) and job.kbit and job.task == "train"
        self.wide = 4 if self.kbit else self.width  # width of unquantised weights
        self.sharded = splits_weights(job)
        self.shares: list[Tensor] = []  # shards of frozen weights
        self.trained: list[Tensor] = []
        self.embeddings: list[Tensor] = []
        self.inputs_need_grad = self.adapted and (job.checkpointing != "none" or self.kbit)

    def _parameter(self, shape: tuple[int, ...], width: int, trained: bool) -> Tensor:
        tape = self.ops.tape
        kind, tape.kind = tape.kind, "parameters" if self.full or not trained else "adapters"
        tape.muted = self.sharded
        made = self.ops.parameter(shape, width, trained)
        tape.muted = False
        if self.sharded and not trained:
            from gpuready.fit.sharding import share

            self.shares.append(share(self.ops, made, self.job))
        tape.kind = kind
        if trained:
            self.trained.append(made)
        return made

    def table(self, shape: tuple[int, ...]) -> Tensor:
        made = self._parameter(shape, self.wide, self.full)
        self.embeddings.append(made)
        return made

    def norm(self, shape: tuple[int, ...]) -> Tensor:
        return self._parameter(shape, self.wide, self.full)

    def expert(self, shape: tuple[int, ...]) -> Tensor:
        return self._parameter(shape, self.wide, self.full)

    def beside_expert(self, shape: tuple[int, ...], rank: int) -> tuple[Tensor, Tensor] | None:
        """Return the adapter of a stack of experts (or of the router), as peft does if all layers are adapted."""
        if not self.adapted or self.job.lora_targets not in ("all", "all-linear"):
            return None
        *experts, out, size = shape
        width, whole = 4 if self.job.lora_dtype == "fp32" else 2, rank * (experts[0] if experts else 1)
        return self._parameter((whole, size), width, True), self._parameter((out, whole), width, True)

    def head(self, size: int, vocabulary: int, bias: bool) -> Linear:
        weight = self._parameter((vocabulary, size), self.wide, self.full)
        return Linear(weight, self._parameter((vocabulary,), self.wide, self.full) if bias else None)

    def linear(self, name: str, size: int, out: int, bias: bool) -> Linear:
        if self.job.quant and name not in NOT_ADAPTED:
            made = self._quantised(name, size, out)
        else:
            made = Linear(self._parameter((out, size), self.width, self.full))
        if bias:
            made.bias = self._parameter((out,), self.wide if self.job.quant else self.width, self.full)
        if self.adapted and self._wanted(name):
            self._adapt(made, size, out)
        return made

    def _wanted(self, name: str) -> bool:
        targets = self.job.lora_targets
        if targets in ("all", "all-linear"):
            return name not in NOT_ADAPTED
        return name in (QV if targets == "qv" else targets)

    def _adapt(self, made: Linear, size: int, out: int) -> None:
        width, rank = 4 if self.job.lora_dtype == "fp32" else 2, self.job.lora_r
        made.a = self._parameter((rank, size), width, True)
        made.b = self._parameter((out, rank), width, True)
        if self.job.dora:
            self.ops.ready()  # for the first norm
            made.magnitude = self._parameter((out,), width, True)

    def _quantised(self, name: str, size: int, out: int) -> Linear:
        """Allocate what bitsandbytes keeps of a weight."""
        ops, count = self.ops, size * out
        made = Linear(None)
        made.shape, made.quant = (out, size), self.job.quant
        made.follows_gate = name == "down_proj"
        kind, ops.tape.kind = ops.tape.kind, "parameters"
        if made.quant == "int8":
            made.codes = (ops.scratch(count), ops.scratch(4 * out))
        else:
            blocks = -(-count // 64)
            codes = [ops.scratch(-(-count // 2)), ops.scratch(64)]
            if self.job.double_quant:
                codes += [
                    ops.scratch(blocks),
                    ops.scratch(4),
                    ops.scratch(4 * -(-blocks // 256)),
                    ops.scratch(1024),
                ]
            else:
                codes.append(ops.scratch(4 * blocks))
            made.codes = tuple(codes)
        ops.tape.kind = kind
        return made


def project(ops: Ops, x: Tensor, linear: Linear) -> Tensor:
    """Run a linear layer: the base, then the adapter as peft adds it."""
    if ops.modules is None:
        return _project(ops, x, linear)
    return ops.modules.around(linear.tensors(), lambda y: _project(ops, y, linear), x)


def _project(ops: Ops, x: Tensor, linear: Linear) -> Tensor:
    if linear.a is None or linear.b is None:
        return _base(ops, x, linear)
    return _adapted_quantised(ops, x, linear) if linear.quant else _adapted(ops, x, linear)


def _adapted(ops: Ops, x: Tensor, linear: Linear) -> Tensor:
    """peft's layer over a plain weight: the sum is computed in the adapter's dtype, then cast back."""
    assert linear.a is not None and linear.b is not None
    result = _base(ops, x, linear)
    width = result.width
    inside = ops.to(x, linear.a.width)
    if linear.magnitude is not None:
        result = dora(ops, inside, result, linear)
    else:
        dropped = [ops.dropout(inside, ops.lora_dropout)]
        result = ops.add(result, ops.scale(ops.linear(ops.linear(dropped.pop(), linear.a), linear.b)))
    return ops.to(result, width)


def _adapted_quantised(ops: Ops, x: Tensor, linear: Linear) -> Tensor:
    """peft's layer over a quantised weight: under autocast nothing is cast; a 4-bit result is copied first."""
    assert linear.a is not None and linear.b is not None
    result = _base(ops, x, linear)
    if linear.quant != "int8":
        result = ops.unary(result, "clone", keeps="", copies=False)
    width = result.width
    inside = x if ops.autocast else ops.to(x, linear.a.width)
    if linear.magnitude is not None:
        made = dora(ops, inside, result, linear)
        return made if ops.autocast else ops.to(made, width)
    output = ops.scale(ops.linear(ops.linear(ops.dropout(inside, ops.lora_dropout), linear.a), linear.b))
    if not ops.autocast:
        output = ops.to(output, width)
    result = ops.add(result, output)
    return result


def dora(ops: Ops, x: Tensor, result: Tensor, linear: Linear) -> Tensor:
    """Weight-decomposed LoRA: the norm of the full weight is computed in every pass.

    peft holds the product of the adapters, with its graph, and the weight in the adapters' dtype to the end of
    the pass; with dropout the base runs once more on the dropped input, and keeps that weight.
    """
    a, b = linear.a, linear.b
    assert a is not None and b is not None and linear.magnitude is not None
    dropped = ops.dropout(x, ops.lora_dropout)
    eye = ops.new((a.shape[1], a.shape[1]), a.width)
    delta = ops.linear(ops.linear(eye, a), b)
    del eye
    delta = ops.to(delta, x.width)
    weight = dequantised(ops, linear, ops.compute) if linear.quant else linear.weight
    assert weight is not None
    same = weight.width == x.width
    weight = ops.to(weight, x.width)
    whole = _sum_with_scaled(ops, weight)
    norm = ops.new((b.shape[0],), x.width)
    if ops.bias_first:  # transposed weight: the norm reduces over the columns
        held = [ops.scratch(n) for n in scratch_of_sum(a.shape[1], b.shape[0], x.width, ops.processors)]
        del held
    del whole
    scale = ops.mul(linear.magnitude, norm)
    lora = ops.linear(ops.linear(dropped, a), b)
    if ops.lora_dropout:
        base = ops.linear(dropped, _wrapped(ops, weight) if ops.bias_first and same else weight)
    else:
        base = result if linear.bias is None else ops.add(result, linear.bias)
    more = ops.add(ops.mul(ops.scale(scale, "add"), base), ops.scale(ops.mul(scale, lora)))
    del base, delta, weight, lora  # as peft's variables are freed; the dropped input belongs to the caller
    return ops.add(result, more)


def _wrapped(ops: Ops, weight: Tensor) -> Tensor:
    """Return the transposed weight of a Conv1D. peft makes a new parameter of it each time, trained by default:
    autocast caches its copy, and it gets a gradient that nothing reads.
    """
    made = ops.detached(weight)
    made.fn = Node(FIRST, "accumulate", (), lambda g: ops.unasked.append(g.pop()) or (), 1)  # type: ignore[func-returns-value]
    made.trained = True
    ops.unasked.append(made)
    return made


def _sum_with_scaled(ops: Ops, weight: Tensor) -> Tensor:
    scaled = ops.new(weight.shape, weight.width)
    whole = ops.new(weight.shape, weight.width)
    del scaled
    return whole


def _base(ops: Ops, x: Tensor, linear: Linear) -> Tensor:
    if not linear.quant:
        assert linear.weight is not None
        return ops.linear(x, linear.weight, linear.bias)
    return _int8(ops, x, linear) if linear.quant == "int8" else _four_bit(ops, x, linear)


def dequantised(ops: Ops, linear: Linear, width: int) -> Tensor:
    """Dequantise the weight for one product, after the scales of double quantisation."""
    scales = _scales(ops, linear)
    made = ops.new(linear.shape, width)
    del scales
    return made


def _scales(ops: Ops, linear: Linear) -> Tensor | None:
    """Allocate one scale per 64 values, if the scales are quantised."""
    return ops.new((-(-linear.shape[0] * linear.shape[1] // 64),), 4) if ops.double_quant else None


def _four_bit(ops: Ops, x: Tensor, linear: Linear) -> Tensor:
    """bitsandbytes' 4-bit product: keeps only the codes, and dequantises again in the backward."""
    inside = ops.to(x, ops.compute)
    ops.tape.op = "4-bit linear"
    scales = [_scales(ops, linear) for _ in range(2)]  # the scales, and the scales with their mean added
    weight = ops.new(linear.shape, ops.compute)
    out = ops.new((*x.shape[:-1], linear.shape[0]), ops.compute)
    ops.ready() if linear.bias is None else ops.ready_for_bias()
    del weight, scales
    if ops.tracked(inside):
        shape = inside.shape

        def back(g: Grads) -> tuple[Tensor | None, ...]:
            weight = dequantised(ops, linear, g[0].width)
            made = ops.new(shape, g[0].width)
            ops.ready()
            del weight
            made.view = True
            return (made,)

        ops.tie(out, "4-bit linear", (inside,), back)
    made = ops.to(out, x.width)
    del out
    return made


def _int8(ops: Ops, x: Tensor, linear: Linear) -> Tensor:
    """bitsandbytes' 8-bit product: the input is quantised by row in fp16. Its input outlives any checkpoint."""
    ops.tape.op = "8-bit linear"
    rows, shape = x.numel // x.shape[-1], (*x.shape[:-1], linear.shape[0])
    half = ops.new(x.shape, 2)
    scales, codes = ops.new((rows,), 4), ops.new(x.shape, 1)
    large, marks = ops.new(x.shape, 2), ops.new(x.shape, 1)
    del large, marks, half
    columns = outliers(linear, rows)
    beside, part = None, None
    if columns:
        beside = ops.new((rows, columns), x.width)
        few = ops.new((linear.shape[0], columns), 1)
        wide = ops.new((linear.shape[0], columns), 4)
        part = ops.new((linear.shape[0], columns), x.width)
        del few, wide
    sums = ops.new(shape, 4)
    product = ops.new(shape, 2)
    out = product if ops.half_is_fp16 else ops.new(shape, x.width)
    del sums, product
    if part is not None:
        out = ops.new(shape, x.width)
    del part, codes, scales
    if ops.pinned is not None:
        ops.pinned += [ops.detached(x)] if beside is None else [ops.detached(x), beside]
    if ops.tracked(x):
        inner, width = x.shape, x.width

        def back(g: Grads, kept: object = (ops.detached(x), beside)) -> tuple[Tensor | None, ...]:
            weight = ops.new(linear.shape, width)
            made = ops.new(inner, width)
            ops.ready()
            del weight
            made.view = True
            return (made,)

        ops.tie(out, "8-bit linear", (x,), back)
    return out


def outliers(linear: Linear, rows: int) -> int:
    """Return the number of input columns of a gated down projection with a value over bitsandbytes' threshold
    of 6.

    It depends on the data. This is the expectation for weights of the usual initial spread: the product of
    silu(g) and u, both normal.
    """
    if not linear.follows_gate:
        return 0
    from math import erfc, exp, pi, sqrt

    spread, cells, chance = 0.02 * sqrt(linear.shape[0]), 200, 0.0
    for cell in range(cells):
        g = spread * (12 * (cell + 0.5) / cells - 6)
        share = exp(-g * g / (2 * spread * spread)) / (spread * sqrt(2 * pi)) * 12 * spread / cells
        factor = abs(g / (1 + exp(-g)))
        if factor > 1e-9:
            chance += share * erfc(6 / (factor * spread * sqrt(2)))
    return int(linear.shape[1] * (1 - (1 - min(chance, 1.0)) ** rows))
