"""The weights of a decoder's layers, created in module order."""

from __future__ import annotations

from gpuready.fit.job.model_shape import ModelShape
from gpuready.fit.tape.autograd import Tensor
from gpuready.fit.tape.model_parts import LayerWeights, ModelParts

LEADING_NORMS = {"neox": ("in", "mid"), "conv": ("in",)}  # norms created before a layer's attention


def adapts_experts(shape: ModelShape) -> bool:
    """Whether peft adapts router and experts where all linear layers are: it knows the names of some families."""
    return bool(shape.experts) and shape.family != "qwen2_moe"


def new_norm_weights(model: ModelParts, size: int) -> tuple[Tensor, Tensor | None]:
    one = model.maker.new_norm((size,))
    return one, model.maker.new_norm((size,)) if model.shape.norm == "layer" else None


def new_layer_weights(model: ModelParts, index: int) -> LayerWeights:
    """Create the weights of a layer in module order."""
    s, layer = model.shape, LayerWeights(index)
    for name in LEADING_NORMS.get(s.packed, ()):
        layer.norms[name] = new_norm_weights(model, s.hidden)
    _add_attention_weights(model, layer)
    if s.packed == "conv":
        layer.norms["mid"] = new_norm_weights(model, s.hidden)
    if s.qk_norm:
        layer.norms["q"], layer.norms["k"] = (new_norm_weights(model, s.head_size) for _ in range(2))
    if s.is_sparse_layer(index):
        _add_expert_weights(model, layer)
    else:
        _add_mlp_weights(model, layer, s.inner)
    if s.packed not in LEADING_NORMS:
        layer.norms["in"] = new_norm_weights(model, s.hidden)
        if s.parallel != "phi":
            layer.norms["mid"] = new_norm_weights(model, s.hidden)
    if s.post_norms:
        layer.norms["pre"], layer.norms["post"] = (new_norm_weights(model, s.hidden), new_norm_weights(model, s.hidden))
    return layer


def _add_attention_weights(model: ModelParts, layer: LayerWeights) -> None:
    """Create the projections of queries, keys, values and the result."""
    s, make = model.shape, model.maker.new_linear
    q, kv = s.heads * s.head_size, s.kv_heads * s.head_size
    if s.packed:
        name = {"conv": "c_attn", "phi3": "qkv_proj"}.get(s.packed, "query_key_value")
        layer.linears["qkv"] = make(name, s.hidden, q + 2 * kv, s.bias_qkv)
    else:
        for name, size in (("q", q), ("k", kv), ("v", kv)):
            layer.linears[name] = make(f"{name}_proj", s.hidden, size, s.bias_qkv)
    dense = s.parallel == "phi" and s.norm == "layer"
    out = {"neox": "dense", "conv": "c_proj"}.get(s.packed, "dense" if dense else "o_proj")
    layer.linears["o"] = make(out, q, s.hidden, s.bias_out)


def _add_mlp_weights(model: ModelParts, layer: LayerWeights, inner: int, prefix: str = "") -> None:
    s, make = model.shape, model.maker.new_linear
    if s.gated and s.packed == "phi3":
        layer.linears["gate_up"] = make("gate_up_proj", s.hidden, 2 * inner, False)
    elif s.gated:
        layer.linears[prefix + "gate"] = make("gate_proj", s.hidden, inner, s.bias_mlp)
        layer.linears[prefix + "up"] = make("up_proj", s.hidden, inner, s.bias_mlp)
    else:
        name = {"neox": "dense_h_to_4h", "conv": "c_fc"}.get(s.packed, "fc1")
        layer.linears["up"] = make(name, s.hidden, inner, s.bias_mlp)
    down = {"neox": "dense_4h_to_h", "conv": "c_proj"}.get(s.packed, "down_proj" if s.gated else "fc2")
    layer.linears[prefix + "down"] = make(down, inner, s.hidden, s.bias_mlp)


def _add_expert_weights(model: ModelParts, layer: LayerWeights) -> None:
    s, table = model.shape, model.maker.new_expert
    layer.moe["router"] = table((s.experts, s.hidden))
    layer.moe["gate_up"] = table((s.experts, 2 * s.expert_inner, s.hidden))
    layer.moe["down"] = table((s.experts, s.hidden, s.expert_inner))
    if adapts_experts(s):
        for name, ranks in (("router", 1), ("gate_up", 2), ("down", 1)):
            pair = model.maker.new_expert_adapter(layer.moe[name].shape, ranks * model.job.lora_r)
            if pair is not None:
                layer.adapters[name] = pair
    if s.shared_inner:
        _add_mlp_weights(model, layer, s.shared_inner, prefix="shared_")
        layer.linears["shared"] = model.maker.new_linear("shared_expert_gate", s.hidden, 1, False)
