"""Mixture of experts as transformers runs it: sorted tokens through grouped products."""

from gpuready.fit.tape.attention import softmax
from gpuready.fit.tape.autograd import Tensor
from gpuready.fit.tape.linear_layers import apply_linear
from gpuready.fit.tape.model_parts import LayerWeights, ModelParts
from gpuready.fit.tape.torch_ops import Grads, TorchOps

SORT_KERNELS = 22  # small kernels that sort the tokens by expert and count them


def run_moe(model: ModelParts, layer: LayerWeights, x: Tensor) -> Tensor:
    """Run the router, the selected experts, and the shared expert if there is one."""
    ops, s = model.ops, model.shape
    rows = x.numel // s.hidden
    flat = ops.view(x, (rows, s.hidden))
    shared = None
    if s.shared_inner:
        shared = model.run_gated_mlp(flat, *(layer.linears[f"shared_{n}"] for n in ("gate", "up", "down")))
    weights, _picks = _route_tokens(model, layer, flat)  # both are held to the end
    # generate takes batched products for every token after the first
    one_token = model.cache is not None and model.has_row_masks and x.shape[1] == 1
    out = (_run_batched if one_token else _run_grouped)(model, layer, flat, weights)
    if shared is not None:
        gate = ops.unary_op(apply_linear(ops, flat, layer.linears["shared"]), "sigmoid", keeps="result")
        shared = ops.mul(gate, shared)
        out = ops.add(out, shared)
    return ops.view(out, x.shape)


def _route_tokens(model: ModelParts, layer: LayerWeights, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the weights and the experts of every token."""
    ops, s = model.ops, model.shape
    logits = ops.linear(x, _router_weight(ops, layer))
    probabilities = softmax(ops, ops.to_width(logits, 4), 4)
    weights, picks = _top_k_values(ops, probabilities, s.experts_per_token)
    if s.normed_router or s.family == "mixtral":
        weights = ops.mul(weights, ops.unary_op(ops.mean(weights), "sum", keeps=""))
    if s.family != "mixtral":
        weights = ops.to_width(weights, logits.width)
    return weights, picks


def _router_weight(ops: TorchOps, layer: LayerWeights) -> Tensor:
    """Return the router's weight; peft adds the product of its adapter."""
    weight = layer.moe["router"]
    if "router" not in layer.adapters:
        return weight
    a, b = layer.adapters["router"]
    return ops.add(weight, ops.to_width(ops.scalar_op(ops.linear(ops.transpose_matrix(a), b)), weight.width))


def _top_k_values(ops: TorchOps, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """torch.topk; the indices are kept, and the gradient is a full tensor of zeros with these values."""
    ops.tape.op = "topk"
    out = ops.new_empty((x.shape[0], k), x.width)
    ops.tape.launch_kernel("topk", x.numel, x.width)
    places = ops.new_scratch(8 * x.shape[0] * k)
    if ops.any_requires_grad(x):
        ops.count_saved()
        old, before = x.shape, x.width

        def backward(g: Grads, kept: Tensor = places) -> tuple[Tensor | None, ...]:
            made = ops.new_empty(old, before)
            ops.tape.launch_kernel("spread", made.numel, 2 * made.numel * before)
            return (made,)

        ops.add_node(out, "topk", (x,), backward)
    return out, places


class FoldedExperts:
    """The experts' weights with their adapters folded in: full copies, kept to the end of the pass as peft
    caches them.
    """

    def __init__(self, ops: TorchOps, layer: LayerWeights) -> None:
        self._ops, self._weights = ops, layer.moe
        self._factors = {
            name: self._cast_factors(layer, name) for name in ("down", "gate_up") if name in layer.adapters
        }
        self._folded_weights: dict[str, Tensor] = {}

    def _cast_factors(self, layer: LayerWeights, name: str) -> tuple[Tensor, Tensor]:
        """Return both factors per expert, in the dtype of the weight."""
        ops, (a, b), weight = self._ops, layer.adapters[name], self._weights[name]
        experts, out, size = weight.shape
        rank = a.shape[0] // experts
        left = ops.to_width(ops.slice(b, (experts, out, rank)), weight.width)
        right = ops.to_width(ops.view(a, (experts, rank, size)), weight.width)
        before, ops.grad_enabled = ops.grad_enabled, False
        _fold_adapter(ops, weight, left, right)  # torch calls a parametrization once on registration
        ops.grad_enabled = before
        return left, right

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._factors:
            return self._weights[name]
        if name not in self._folded_weights:
            self._folded_weights[name] = _fold_adapter(self._ops, self._weights[name], *self._factors[name])
        return self._folded_weights[name]


def _fold_adapter(ops: TorchOps, weight: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """Compute weight + left @ right for every expert in one product."""
    ops.tape.op = "experts' adapter"
    if ops.any_requires_grad(left, right):
        ops.count_saved()
    out = ops.new_empty(weight.shape, weight.width)
    dense = ops.new_scratch(left.numel * left.width if ops.processors else 0)  # its memory order is by rank
    ops.ensure_workspace()
    del dense
    ops.tape.launch_kernel("move", 2 * out.numel * out.width)  # the weight is copied, then added to
    ops.tape.launch_kernel("added matmul", 2 * out.numel * out.width)
    experts, rows, columns = weight.shape
    rank, width = left.shape[2], weight.width
    if ops.any_requires_grad(left, right):

        def backward(
            g: Grads, kept: tuple[Tensor, Tensor] = (ops.detach(left), ops.detach(right))
        ) -> tuple[Tensor | None, ...]:
            made: list[Tensor] = []
            ops.tape.launch_matmul(rows, rank, columns, width, experts, columns, rank)
            ops.tape.launch_matmul(rank, columns, rows, width, experts, columns, rank)
            for one in kept:
                dense = ops.new_scratch(kept[0].numel * kept[0].width if made and ops.processors else 0)
                product = ops.new_empty(one.shape, one.width)
                ops.ensure_workspace()
                del dense
                made.append(ops.empty_like(product))
                del product
            return tuple(made)

        ops.add_node(out, "experts' adapter", (left, right), backward)
    return out


def gather_rows(ops: TorchOps, x: Tensor, rows: int, index: Tensor) -> Tensor:
    """Select rows by index; the backward sorts the indices and sums the rows."""
    ops.tape.op = "index"
    if ops.any_requires_grad(x):
        ops.count_saved()
    out = ops.new_empty((rows, *x.shape[1:]), x.width)
    ops.tape.launch_kernel("spread", out.numel, 2 * out.numel * out.width)
    if ops.any_requires_grad(x):
        old, width = x.shape, x.width

        def backward(g: Grads, kept: Tensor = index) -> tuple[Tensor | None, ...]:
            made = ops.new_empty(old, width)
            ops.tape.launch_kernel("index backward", g[0].shape[0], g[0].numel, width)
            live_buffers = [ops.new_scratch(8 * rows) for _ in range(4)]
            del live_buffers
            return (made,)

        ops.add_node(out, "index", (x,), backward)
    return out


def grouped_matmul(ops: TorchOps, x: Tensor, weight: Tensor, out_size: int) -> Tensor:
    """One product for all experts, in the dtype of the weight: autocast does not cover it."""
    x = ops.to_width(x, weight.width)
    ops.tape.op = "grouped_mm"
    rows = x.shape[0]
    tracked = ops.any_requires_grad(x, weight)
    if tracked:
        ops.count_saved()
    out = ops.new_empty((rows, out_size), x.width)
    count, inner = weight.shape[0], x.shape[1]
    ops.tape.launch_matmul(rows // count or 1, out_size, inner, x.width, count, out_size, inner)
    if tracked:
        kept = (ops.detach(x) if weight.requires_grad else None, ops.detach(weight) if x.requires_grad else None)
        needs, shapes, width = (x.requires_grad, weight.requires_grad), (x.shape, weight.shape), weight.width

        def backward(g: Grads, kept: object = kept) -> tuple[Tensor | None, ...]:
            to_weight = ops.new_empty(shapes[1], width) if needs[1] else None
            if needs[1]:
                ops.tape.launch_matmul(out_size, inner, rows // count or 1, width, count, out_size, inner)
            if needs[0]:
                ops.tape.launch_matmul(rows // count or 1, inner, out_size, width, count, out_size, inner)
            return ops.new_empty(shapes[0], g[0].width) if needs[0] else None, to_weight

        ops.add_node(out, "grouped_mm", (x, weight), backward)
    return out


def mask_rows(ops: TorchOps, x: Tensor, mask: Tensor, in_place: bool = False) -> Tensor:
    """Zero the rows of experts on other ranks, in a copy or in place; the gradient always in a copy.

    This is transformers 5.17, with which the measurements were made; 5.22 omits it when all experts are local.
    """
    ops.tape.op = "masked_fill"
    if ops.any_requires_grad(x):
        ops.count_saved()
    out = ops.detach(x) if in_place else ops.empty_like(x)
    if not in_place:
        ops.tape.launch_kernel("move", 2 * x.numel * x.width)
    ops.tape.launch_kernel("spread", x.numel, 2 * x.numel * x.width)
    if ops.any_requires_grad(x):

        def backward(g: Grads, kept: Tensor = mask) -> tuple[Tensor | None, ...]:
            ops.tape.launch_kernel("move", 2 * g[0].numel * g[0].width)
            ops.tape.launch_kernel("spread", g[0].numel, 2 * g[0].numel * g[0].width)
            return (ops.empty_like(g[0]),)

        ops.add_node(out, "masked_fill", (x,), backward)
    return out


def _run_grouped(model: ModelParts, layer: LayerWeights, x: Tensor, weights: Tensor) -> Tensor:
    """Tokens sorted by expert, two grouped products, and back into their order."""
    ops, s = model.ops, model.shape
    rows, k = x.shape[0], s.experts_per_token
    count = rows * k
    stacks = FoldedExperts(ops, layer)
    ids, order, index = ops.new_scratch(8 * count), ops.new_scratch(8 * count), ops.new_scratch(8 * count)
    for _ in range(SORT_KERNELS):
        ops.tape.launch_kernel("move", 16 * count)
    selected = gather_rows(ops, x, count, index)
    flat = ops.view(weights, (count, 1))
    chosen = gather_rows(ops, flat, count, order)
    mask = ops.new_empty((count, 1), 1)
    selected = mask_rows(ops, selected, mask, in_place=True)
    projected = grouped_matmul(ops, selected, stacks["gate_up"], 2 * s.expert_inner)
    projected = mask_rows(ops, projected, mask)
    projected = _apply_expert_gate(model, projected)
    projected = grouped_matmul(ops, projected, stacks["down"], s.hidden)
    projected = mask_rows(ops, projected, mask)
    weighted = ops.mul(projected, chosen)
    inverse = ops.new_scratch(8 * count)
    weighted = gather_rows(ops, weighted, count, inverse)
    summed = sum_expert_outputs(ops, weighted, rows, k)
    del ids
    return ops.to_width(summed, x.width)


def _run_batched(model: ModelParts, layer: LayerWeights, x: Tensor, weights: Tensor) -> Tensor:
    """Copy the expert's weights for every selected pair of token and expert; nothing is kept for a backward."""
    ops, s = model.ops, model.shape
    count = x.shape[0] * s.experts_per_token
    ops.tape.op = "expert weights"
    state = ops.new_empty((count, s.hidden), x.width)
    width = layer.moe["gate_up"].width
    selected = ops.new_empty((count, 2 * s.expert_inner, s.hidden), width)
    projected = ops.new_empty((count, 2 * s.expert_inner), x.width)
    projected = _apply_expert_gate(model, projected)
    ops.tape.op = "expert weights"
    selected = ops.new_empty((count, s.hidden, s.expert_inner), width)
    projected = ops.new_empty((count, s.hidden), x.width)
    weighted = ops.mul(projected, ops.view(weights, (count, 1)))
    summed = sum_expert_outputs(ops, weighted, x.shape[0], s.experts_per_token)
    del state, selected
    return ops.to_width(summed, x.width)


def _apply_expert_gate(model: ModelParts, both: Tensor) -> Tensor:
    ops = model.ops
    rows, size = both.shape[0], both.shape[1] // 2
    gate, up = ops.split(both, [(rows, size)] * 2)
    return ops.mul(model.apply_activation(gate), up)


def sum_expert_outputs(ops: TorchOps, x: Tensor, rows: int, k: int) -> Tensor:
    """Sum the outputs of a token's experts."""
    ops.tape.op = "sum"
    out = ops.new_empty((rows, x.shape[1]), x.width)
    ops.tape.launch_kernel("spread", x.numel, x.numel * x.width)
    if ops.any_requires_grad(x):
        old, size = x.shape, x.numel * x.width

        def backward(g: Grads) -> tuple[Tensor | None, ...]:
            ops.tape.launch_kernel("move", size)
            return (ops.new_empty(old, g[0].width),)

        ops.add_node(out, "sum", (x,), backward)
    return out
