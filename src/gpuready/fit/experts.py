"""Mixture of experts as transformers runs it: sorted tokens through grouped products, or one expert at a time."""

from __future__ import annotations

from gpuready.fit.tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.fit.layers import Model
    from gpuready.fit.ops import Grads, Ops
    from gpuready.fit.weights import Layer


def moe(model: Model, layer: Layer, x: Tensor) -> Tensor:
    """Run the router, the selected experts, and the shared expert if there is one."""
    ops, s = model.ops, model.shape
    rows = x.numel // s.hidden
    flat = ops.view(x, (rows, s.hidden))
    shared = None
    if s.shared_inner:
        shared = model.gated(flat, *(layer.linears[f"shared_{n}"] for n in ("gate", "up", "down")))
    weights, picks = _router(model, layer, flat)
    run = _grouped if model.job.experts == "grouped_mm" else _one_by_one
    if run is _grouped and model.cache is not None and model.told and x.shape[1] == 1:
        run = _batched  # generate uses this for every token after the first
    out = run(model, layer, flat, weights, picks)
    if shared is not None:
        from gpuready.fit.projection import project

        gate = ops.unary(project(ops, flat, layer.linears["shared"]), "sigmoid", keeps="result")
        shared = ops.mul(gate, shared)
        out = ops.add(out, shared)
    return ops.view(out, x.shape)


def _router(model: Model, layer: Layer, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights and the experts of every token."""
    ops, s = model.ops, model.shape
    logits = ops.linear(x, _router_weight(ops, layer))
    from gpuready.fit.attention import softmax

    probabilities = softmax(ops, ops.to(logits, 4), 4)
    weights, picks = _largest(ops, probabilities, s.experts_per_token)
    if s.normed_router or s.family == "mixtral":
        weights = ops.mul(weights, ops.unary(ops.mean(weights), "sum", keeps=""))
    if s.family != "mixtral":
        weights = ops.to(weights, logits.width)
    return weights, picks


def _router_weight(ops: Ops, layer: Layer) -> Tensor:
    """Return the router's weight; peft adds the product of its adapter."""
    weight = layer.moe["router"]
    if "router" not in layer.adapters:
        return weight
    a, b = layer.adapters["router"]
    return ops.add(weight, ops.to(ops.scale(ops.linear(ops.turned_over(a), b)), weight.width))


class Folded:
    """The experts' weights with their adapters folded in: full copies, kept to the end of the pass as peft
    caches them.
    """

    def __init__(self, ops: Ops, layer: Layer) -> None:
        self._ops, self._weights = ops, layer.moe
        self._factors = {
            name: self._cast(layer, name) for name in ("down", "gate_up") if name in layer.adapters
        }
        self._made: dict[str, Tensor] = {}

    def _cast(self, layer: Layer, name: str) -> tuple[Tensor, Tensor]:
        """Return both factors per expert, in the dtype of the weight."""
        ops, (a, b), weight = self._ops, layer.adapters[name], self._weights[name]
        experts, out, size = weight.shape
        rank = a.shape[0] // experts
        left = ops.to(ops.slice(b, (experts, out, rank)), weight.width)
        right = ops.to(ops.view(a, (experts, rank, size)), weight.width)
        before, ops.grad = ops.grad, False
        _folded(ops, weight, left, right)  # torch calls a parametrization once on registration
        ops.grad = before
        return left, right

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._factors:
            return self._weights[name]
        if name not in self._made:
            self._made[name] = _folded(self._ops, self._weights[name], *self._factors[name])
        return self._made[name]


def _folded(ops: Ops, weight: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Compute weight + left @ right for every expert in one product."""
    ops.tape.op = "experts' adapter"
    if ops.tracked(left, right):
        ops.keep()
    out = ops.new(weight.shape, weight.width)
    dense = ops.scratch(left.numel * left.width if ops.processors else 0)  # its memory order is by rank
    ops.ready()
    del dense
    if ops.tracked(left, right):

        def back(
            g: Grads, kept: tuple[Tensor, Tensor] = (ops.detached(left), ops.detached(right))
        ) -> tuple[Tensor | None, ...]:
            made: list[Tensor] = []
            for one in kept:
                dense = ops.scratch(kept[0].numel * kept[0].width if made and ops.processors else 0)
                product = ops.new(one.shape, one.width)
                ops.ready()
                del dense
                made.append(ops.like(product))
                del product
            return tuple(made)

        ops.tie(out, "experts' adapter", (left, right), back)
    return out


def _largest(ops: Ops, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """torch.topk; the indices are kept, and the gradient is a full tensor of zeros with these values."""
    ops.tape.op = "topk"
    out = ops.new((x.shape[0], k), x.width)
    places = ops.scratch(8 * x.shape[0] * k)
    if ops.tracked(x):
        ops.keep()
        old, before = x.shape, x.width

        def back(g: Grads, kept: Tensor = places) -> tuple[Tensor | None, ...]:
            return (ops.new(old, before),)

        ops.tie(out, "topk", (x,), back)
    return out, places


def _gathered(ops: Ops, x: Tensor, rows: int, index: Tensor) -> Tensor:
    """Select rows by index; the backward sorts the indices and sums the rows."""
    ops.tape.op = "index"
    if ops.tracked(x):
        ops.keep()
    out = ops.new((rows, *x.shape[1:]), x.width)
    if ops.tracked(x):
        old, width = x.shape, x.width

        def back(g: Grads, kept: Tensor = index) -> tuple[Tensor | None, ...]:
            made = ops.new(old, width)
            held = [ops.scratch(8 * rows) for _ in range(4)]
            del held
            return (made,)

        ops.tie(out, "index", (x,), back)
    return out


def grouped_product(ops: Ops, x: Tensor, weight: Tensor, out_size: int) -> Tensor:
    """One product for all experts, in the dtype of the weight: autocast does not cover it."""
    x = ops.to(x, weight.width)
    ops.tape.op = "grouped_mm"
    rows = x.shape[0]
    tracked = ops.tracked(x, weight)
    if tracked:
        ops.keep()
    out = ops.new((rows, out_size), x.width)
    if tracked:
        kept = (ops.detached(x) if weight.needs else None, ops.detached(weight) if x.needs else None)
        needs, shapes, width = (x.needs, weight.needs), (x.shape, weight.shape), weight.width

        def back(g: Grads, kept: object = kept) -> tuple[Tensor | None, ...]:
            to_weight = ops.new(shapes[1], width) if needs[1] else None
            return ops.new(shapes[0], g[0].width) if needs[0] else None, to_weight

        ops.tie(out, "grouped_mm", (x, weight), back)
    return out


def _masked(ops: Ops, x: Tensor, mask: Tensor, in_place: bool = False) -> Tensor:
    """Zero the rows of experts on other ranks, in a copy or in place; the gradient always in a copy.

    This is transformers 5.17, with which the measurements were made; 5.22 omits it when all experts are local.
    """
    ops.tape.op = "masked_fill"
    if ops.tracked(x):
        ops.keep()
    out = ops.detached(x) if in_place else ops.like(x)
    if ops.tracked(x):

        def back(g: Grads, kept: Tensor = mask) -> tuple[Tensor | None, ...]:
            return (ops.like(g[0]),)

        ops.tie(out, "masked_fill", (x,), back)
    return out


def _grouped(model: Model, layer: Layer, x: Tensor, weights: Tensor, picks: Tensor) -> Tensor:
    """Tokens sorted by expert, two grouped products, and back into their order."""
    ops, s = model.ops, model.shape
    rows, k = x.shape[0], s.experts_per_token
    count = rows * k
    stacks = Folded(ops, layer)
    ids, order, index = ops.scratch(8 * count), ops.scratch(8 * count), ops.scratch(8 * count)
    selected = _gathered(ops, x, count, index)
    flat = ops.view(weights, (count, 1))
    chosen = _gathered(ops, flat, count, order)
    mask = ops.new((count, 1), 1)
    selected = _masked(ops, selected, mask, in_place=True)
    projected = grouped_product(ops, selected, stacks["gate_up"], 2 * s.expert_inner)
    projected = _masked(ops, projected, mask)
    projected = _gate(model, projected)
    projected = grouped_product(ops, projected, stacks["down"], s.hidden)
    projected = _masked(ops, projected, mask)
    weighted = ops.mul(projected, chosen)
    inverse = ops.scratch(8 * count)
    weighted = _gathered(ops, weighted, count, inverse)
    summed = _summed(ops, weighted, rows, k)
    del ids
    return ops.to(summed, x.width)


def _batched(model: Model, layer: Layer, x: Tensor, weights: Tensor, picks: Tensor) -> Tensor:
    """Copy the expert's weights for every selected pair of token and expert; nothing is kept for a backward."""
    ops, s = model.ops, model.shape
    count = x.shape[0] * s.experts_per_token
    ops.tape.op = "expert weights"
    state = ops.new((count, s.hidden), x.width)
    width = layer.moe["gate_up"].width
    selected = ops.new((count, 2 * s.expert_inner, s.hidden), width)
    projected = ops.new((count, 2 * s.expert_inner), x.width)
    projected = _gate(model, projected)
    ops.tape.op = "expert weights"
    selected = ops.new((count, s.hidden, s.expert_inner), width)
    projected = ops.new((count, s.hidden), x.width)
    weighted = ops.mul(projected, ops.view(weights, (count, 1)))
    summed = _summed(ops, weighted, x.shape[0], s.experts_per_token)
    del state, selected
    return ops.to(summed, x.width)


def _gate(model: Model, both: Tensor) -> Tensor:
    ops = model.ops
    rows, size = both.shape[0], both.shape[1] // 2
    gate, up = ops.split(both, [(rows, size)] * 2)
    return ops.mul(model.activated(gate), up)


def _summed(ops: Ops, x: Tensor, rows: int, k: int) -> Tensor:
    """Sum the outputs of a token's experts."""
    ops.tape.op = "sum"
    out = ops.new((rows, x.shape[1]), x.width)
    if ops.tracked(x):
        old = x.shape
        ops.tie(out, "sum", (x,), lambda g: (ops.new(old, g[0].width),))
    return out


def _one_by_one(model: Model, layer: Layer, x: Tensor, weights: Tensor, picks: Tensor) -> Tensor:
    """Loop over the experts; each weight is a slice, whose gradient is a full tensor of zeros."""
    ops, s = model.ops, model.shape
    rows, k = x.shape[0], s.experts_per_token
    stacks = Folded(ops, layer)
    final = ops.new(x.shape, x.width)
    one_hot = ops.scratch(8 * rows * k * (s.experts + 1))
    for expert in range(s.experts):
        count = rows * k * (expert + 1) // s.experts - rows * k * expert // s.experts
        if count:
            index = ops.scratch(16 * count)  # token, and rank of the expert
            state = _gathered(ops, x, count, index)
            both = ops.linear(state, ops.slice(stacks["gate_up"], (2 * s.expert_inner, s.hidden)))
            hidden = _gate(model, both)
            hidden = ops.linear(hidden, ops.slice(stacks["down"], (s.hidden, s.expert_inner)))
            hidden = ops.mul(hidden, _gathered(ops, ops.view(weights, (rows * k, 1)), count, index))
            final = _index_add(ops, final, ops.to(hidden, final.width), index)
    del one_hot
    return final


def _index_add(ops: Ops, final: Tensor, part: Tensor, index: Tensor) -> Tensor:
    """Add rows in place; the backward selects the part's rows of the gradient. torch keeps the part for its shape."""
    out = Tensor(final.memory, final.shape, final.width)
    if ops.tracked(final, part):
        ops.keep()
        shape = part.shape

        def back(g: Grads, kept: object = (index, ops.detached(part))) -> tuple[Tensor | None, ...]:
            return g[0], ops.new(shape, g[0].width)

        ops.tie(out, "index_add", (final, part), back)
    return out
