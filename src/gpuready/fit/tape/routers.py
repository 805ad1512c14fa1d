"""Routers other than Mixtral's: which experts a token gets, and with which weights."""

from __future__ import annotations

from gpuready.fit.tape.attention import softmax
from gpuready.fit.tape.autograd import Tensor
from gpuready.fit.tape.model_parts import LayerWeights, ModelParts
from gpuready.fit.tape.torch_ops import Grads, TorchOps

Routing = tuple[Tensor, Tensor, Tensor]  # weights, experts, and logits, which the block holds to its end


def adapted_router_weight(ops: TorchOps, layer: LayerWeights) -> Tensor:
    """Return the router's weight; peft adds the product of its adapter."""
    weight = layer.moe["router"]
    if "router" not in layer.adapters:
        return weight
    a, b = layer.adapters["router"]
    return ops.add(weight, ops.to_width(ops.scalar_op(ops.linear(ops.transpose_matrix(a), b)), weight.width))


def top_k_values(ops: TorchOps, x: Tensor, k: int) -> tuple[Tensor, Tensor]:
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


def route_tokens(model: ModelParts, layer: LayerWeights, x: Tensor) -> Routing:
    """Return the weights and the experts of every token, and the router's logits."""
    return ROUTERS[model.shape.router](model, layer, x)


def _route_by_top_logits(model: ModelParts, layer: LayerWeights, x: Tensor) -> Routing:
    """gpt-oss and Granite: the highest logits, then a softmax over those."""
    ops, s = model.ops, model.shape
    logits = ops.linear(x, adapted_router_weight(ops, layer), layer.moe.get("router_bias"))
    if "router_bias" not in layer.moe:
        logits = ops.to_width(logits, 4)
    values, picks = top_k_values(ops, logits, s.experts_per_token)
    weights = ops.to_width(softmax(ops, values, logits.width), x.width)
    return weights, picks, logits


def _route_by_sigmoid(model: ModelParts, layer: LayerWeights, x: Tensor) -> Routing:
    """DeepSeek V3 and GLM 4 MoE: sigmoids in fp32, the best groups, then the highest of these."""
    ops, s = model.ops, model.shape
    logits = _wide_logits(ops, layer, x)
    scores = ops.unary_op(logits, "sigmoid", keeps="result")
    choice = ops.scalar_op(scores, "add")
    allowed, groups = _mask_other_groups(ops, choice, s.router_groups)
    choice = _fill_masked(ops, choice, allowed)
    picks = top_k_values(ops, choice, s.experts_per_token)[1]
    weights = _gather_scores(ops, scores, picks, s.experts_per_token)
    if s.normed_router:
        weights = ops.mul(weights, ops.scalar_op(ops.unary_op(ops.mean(weights), "sum", keeps=""), "add"))
    weights = ops.scalar_op(weights)
    del choice, groups, allowed
    return weights, picks, logits


def _route_by_scores(model: ModelParts, layer: LayerWeights, x: Tensor) -> Routing:
    """DeepSeek V2: a softmax in fp32, optionally the best groups, then the highest."""
    ops, s = model.ops, model.shape
    logits = _wide_logits(ops, layer, x)
    scores = softmax(ops, logits, 4)
    if s.router_groups:
        allowed, groups = _mask_other_groups(ops, scores, s.router_groups)
        scores = _fill_masked(ops, scores, allowed)
        del groups
    weights, picks = top_k_values(ops, scores, s.experts_per_token)
    return ops.scalar_op(weights), picks, logits


def _wide_logits(ops: TorchOps, layer: LayerWeights, x: Tensor) -> Tensor:
    return ops.linear(ops.to_width(x, 4), ops.to_width(adapted_router_weight(ops, layer), 4))


def _mask_other_groups(ops: TorchOps, scores: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """Return the mask of the experts outside the best groups, and the groups' scores."""
    rows, experts = scores.shape
    ops.tape.op = "groups"
    best = ops.new_empty((rows, groups), 4)
    spread = ops.new_empty((rows, experts), 4)
    mask = ops.new_empty((rows, experts), 1)
    inverse = ops.new_empty((rows, experts), 1)
    del mask, spread
    return inverse, best


def _fill_masked(ops: TorchOps, x: Tensor, mask: Tensor) -> Tensor:
    ops.tape.op = "masked_fill"
    out = ops.empty_like(x)
    if ops.any_requires_grad(x):
        ops.count_saved()

        def backward(g: Grads, kept: Tensor = mask) -> tuple[Tensor | None, ...]:
            return (ops.empty_like(g[0]),)

        ops.add_node(out, "masked_fill", (x,), backward)
    return out


def _gather_scores(ops: TorchOps, scores: Tensor, picks: Tensor, k: int) -> Tensor:
    ops.tape.op = "gather"
    out = ops.new_empty((scores.shape[0], k), scores.width)
    if ops.any_requires_grad(scores):
        ops.count_saved()
        old, width = scores.shape, scores.width

        def backward(g: Grads, kept: Tensor = picks) -> tuple[Tensor | None, ...]:
            return (ops.new_empty(old, width),)

        ops.add_node(out, "gather", (scores,), backward)
    return out


ROUTERS = {"top": _route_by_top_logits, "sigmoid": _route_by_sigmoid, "scores": _route_by_scores}
