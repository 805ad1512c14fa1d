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


def route_by_top_logits(model: ModelParts, layer: LayerWeights, x: Tensor) -> Routing:
    """gpt-oss and Granite: the highest logits, then a softmax over those."""
    ops, s = model.ops, model.shape
    logits = ops.linear(x, adapted_router_weight(ops, layer), layer.moe.get("router_bias"))
    if "router_bias" not in layer.moe:
        logits = ops.to_width(logits, 4)
    values, picks = top_k_values(ops, logits, s.experts_per_token)
    weights = ops.to_width(softmax(ops, values, logits.width), x.width)
    return weights, picks, logits
