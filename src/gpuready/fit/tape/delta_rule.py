"""The gated delta rule as transformers computes it without flash-linear-attention: in chunks, in fp32."""

from __future__ import annotations

from gpuready.fit.tape.autograd import Tensor
from gpuready.fit.tape.torch_ops import Grads, TorchOps

CHUNK = 64


def run_delta_rule(ops: TorchOps, q: Tensor, k: Tensor, v: Tensor, decay: Tensor, beta: Tensor) -> Tensor:
    """Return (batch, seq, heads, size) values; the function has names for all that it computes, to its end."""
    batch, seq, heads, size = v.shape
    width, key_size = q.width, k.shape[-1]
    q, k, v, beta, decay = (_to_fp32_heads(ops, x) for x in (q, k, v, beta, decay))
    q, k = _unit_length(ops, q), _unit_length(ops, k)
    q = ops.scalar_op(q)
    padded = -(-seq // CHUNK) * CHUNK
    q, k, v = [copy_part(ops, x, (batch, heads, padded, x.shape[-1]), "pad") for x in (q, k, v)]
    beta, decay = [copy_part(ops, x, (batch, heads, padded), "pad") for x in (beta, decay)]
    weight = ops.view(beta, (batch, heads, padded, 1))
    v_beta, k_beta = ops.mul(v, weight), ops.mul(k, weight)
    chunks = (batch, heads, padded // CHUNK, CHUNK)
    q, k, k_beta = (ops.view(x, (*chunks, key_size)) for x in (q, k, k_beta))
    v_beta = ops.view(v_beta, (*chunks, size))
    total = copy_part(ops, ops.view(decay, chunks), chunks, "cumsum")
    pairs = _pairwise_decay(ops, total)
    square = (*chunks, CHUNK)
    system = ops.mul(product(ops, k_beta, k, square), pairs)
    scores = ops.mul(product(ops, q, k, square), pairs)
    decayed = ops.mul(k_beta, _column(ops, ops.unary_op(total, "exp", keeps="result")))
    values, keys = solve_triangular(ops, system, v_beta), solve_triangular(ops, system, decayed)
    state = ops.new_empty((batch, heads, key_size, size), 4)
    out = ops.new_empty(values.shape, 4)
    q = ops.mul(q, _column(ops, ops.unary_op(total, "exp", keeps="result")))
    rest = ops.add(ops.slice(total, (*chunks[:3], 1)), total)
    k = ops.mul(k, _column(ops, ops.unary_op(rest, "exp", keeps="result")))
    step = ops.unary_op(ops.slice(total, chunks[:3]), "exp", keeps="result")
    out = _scan_chunks(ops, chunks[2], (values, keys, q, scores, k, step), state, out)
    out = ops.view(out, (batch, heads, padded, size))
    if padded != seq:
        out = ops.slice(out, (batch, heads, seq, size))
    done = copy_part(ops, out, (batch, seq, heads, size), "to", width)
    del v, decay, beta, weight, pairs, system, decayed, total, rest, step
    return done


def _scan_chunks(ops: TorchOps, count: int, parts: tuple[Tensor, ...], state: Tensor, out: Tensor) -> Tensor:
    """Go from chunk to chunk with a state; every part's gradient is a full tensor of zeros with one chunk."""
    values, keys, q, scores, k, step = parts
    batch, heads, _, chunk, size = values.shape
    one = (batch, heads, chunk, size)
    inter = None
    for _ in range(count):
        new = ops.add(_pick(ops, values), product(ops, _pick(ops, keys), state, one))
        inter = product(ops, _pick(ops, q), state, one)
        out = _write_chunk(ops, out, ops.add(inter, product(ops, _pick(ops, scores), new, one)))
        decayed = ops.mul(state, ops.view(_pick(ops, step), (batch, heads, 1, 1)))
        state = ops.add(decayed, product(ops, _pick(ops, k), new, state.shape))
        del decayed
    del inter
    return out


def _pick(ops: TorchOps, x: Tensor) -> Tensor:
    """Return one chunk of (batch, heads, chunks, ...)."""
    return ops.slice(x, (*x.shape[:2], *x.shape[3:]))


def _to_fp32_heads(ops: TorchOps, x: Tensor) -> Tensor:
    """Copy (batch, seq, heads, ...) to (batch, heads, seq, ...) in fp32."""
    return copy_part(ops, x, (x.shape[0], x.shape[2], x.shape[1], *x.shape[3:]), "to", 4)


def _unit_length(ops: TorchOps, x: Tensor) -> Tensor:
    """``x * rsqrt((x * x).sum(-1) + eps)``."""
    scale = ops.unary_op(ops.scalar_op(ops.mean(ops.mul(x, x)), "add"), "rsqrt", keeps="result", temporaries=2)
    return ops.mul(x, scale)


def _column(ops: TorchOps, x: Tensor) -> Tensor:
    return ops.view(x, (*x.shape, 1))


def _pairwise_decay(ops: TorchOps, total: Tensor) -> Tensor:
    """``exp`` of the differences of all pairs in a chunk, later keys masked."""
    ops.tape.op = "sub"
    mask = ops.new_empty((CHUNK, CHUNK), 1)
    pairs = ops.new_empty((*total.shape, CHUNK), 4)
    if ops.any_requires_grad(total):
        shape = total.shape

        def backward(g: Grads) -> tuple[Tensor | None, ...]:
            negative = ops.empty_like(g[0])
            first = ops.new_empty(shape, 4)
            second = ops.new_empty(shape, 4)
            del negative, second
            return (first,)

        ops.add_node(pairs, "sub", (total,), backward)
    masked = ops.unary_op(pairs, "masked_fill", keeps="")
    del pairs
    out = ops.unary_op(masked, "exp", keeps="result")
    del mask
    return out


def copy_part(ops: TorchOps, x: Tensor, shape: tuple[int, ...], op: str, width: int = 0) -> Tensor:
    """Copy into another shape, order or width; the gradient is a copy too, in the input's shape and width."""
    ops.tape.op = op
    out = ops.new_empty(shape, width or x.width)
    ops.tape.launch_kernel("spread", x.numel, x.numel * (x.width + out.width))
    if ops.any_requires_grad(x):
        old, before = x.shape, x.width

        def backward(g: Grads) -> tuple[Tensor | None, ...]:
            ops.tape.launch_kernel("spread", g[0].numel, 2 * g[0].numel * before)
            return (ops.new_empty(old, before),)

        ops.add_node(out, op, (x,), backward)
    return out


def product(ops: TorchOps, a: Tensor, b: Tensor, shape: tuple[int, ...]) -> Tensor:
    """A batched product of parts that lie in memory as the kernel reads them."""
    if ops.autocast:
        b = ops.to_width(b, ops.autocast)
        a = ops.to_width(a, ops.autocast)
    ops.tape.op = "matmul"
    tracked = ops.any_requires_grad(a, b)
    if tracked:
        ops.count_saved()
    out = ops.new_empty(shape, a.width)
    m, n, batch = shape[-2], shape[-1], out.numel // (shape[-2] * shape[-1])
    k = a.numel // (batch * m)
    ops.tape.launch_matmul(m, n, k, a.width, batch, n, k)
    ops.ensure_workspace()
    if not tracked:
        return out
    kept = (ops.detach(a) if b.requires_grad else None, ops.detach(b) if a.requires_grad else None)
    shapes, needs = (a.shape, b.shape), (a.requires_grad, b.requires_grad)

    def backward(g: Grads, kept: object = kept) -> tuple[Tensor | None, ...]:
        made: list[Tensor | None] = [None, None]
        for which in (1, 0):
            if needs[which]:
                made[which] = one = ops.new_empty(shapes[which], g[0].width)
                one.view = True
                ops.tape.launch_matmul(*((k, n, m) if which else (m, k, n)), g[0].width, batch, n, k)
                ops.ensure_workspace()
        return tuple(made)

    ops.add_node(out, "matmul", (a, b), backward)
    return out


def solve_triangular(ops: TorchOps, system: Tensor, right: Tensor) -> Tensor:
    """Keeps the system and the result; the backward solves once more, and multiplies."""
    ops.tape.op = "solve_triangular"
    out = ops.new_empty(right.shape, 4)
    ops.tape.launch_matmul(CHUNK, right.shape[-1], CHUNK, 4, right.numel // (CHUNK * right.shape[-1]), CHUNK, CHUNK)
    if ops.any_requires_grad(system, right):
        ops.count_saved()
        kept = ops.detach(system), ops.detach(out)
        shapes = system.shape, right.shape

        def backward(g: Grads, kept: object = kept) -> tuple[Tensor | None, ...]:
            to_right = ops.new_empty(shapes[1], 4)
            whole = ops.new_empty(shapes[0], 4)
            negative = ops.new_empty(shapes[0], 4)
            del whole
            to_system = ops.new_empty(shapes[0], 4)
            del negative
            return to_system, to_right

        ops.add_node(out, "solve_triangular", (system, right), backward)
    return out


def _write_chunk(ops: TorchOps, whole: Tensor, part: Tensor) -> Tensor:
    """Write a chunk in place; the backward copies the whole gradient, and takes the chunk's out of it."""
    out = Tensor(whole.memory, whole.shape, whole.width)
    if ops.any_requires_grad(whole, part):
        shape, needs = part.shape, whole.requires_grad

        def backward(g: Grads) -> tuple[Tensor | None, ...]:
            rest = ops.empty_like(g[0])
            taken = ops.new_empty(shape, g[0].width)
            return (rest if needs else None), taken

        ops.add_node(out, "copy", (whole, part), backward)
    return out
