"""The weights of a decoder's layers, created in module order."""

from gpuready.fit.job.model_shape import ModelShape
from gpuready.fit.tape.autograd import Tensor
from gpuready.fit.tape.model_parts import LayerWeights, ModelParts


def adapts_experts(shape: ModelShape) -> bool:
    """Whether peft adapts router and experts where all linear layers are: it knows the names of some families."""
    return bool(shape.experts) and shape.family != "qwen2_moe"


def new_norm_weights(model: ModelParts, size: int) -> tuple[Tensor, Tensor | None]:
    one = model.maker.new_norm((size,))
    return one, model.maker.new_norm((size,)) if model.shape.norm == "layer" else None


def new_layer_weights(model: ModelParts, index: int) -> LayerWeights:
    """Create the weights of a layer in module order."""
    s, layer = model.shape, LayerWeights(index)
    if s.packed == "conv":  # it makes this norm before its attention
        layer.norms["in"] = new_norm_weights(model, s.hidden)
    _add_attention_weights(model, layer)
    if s.packed == "conv":
        layer.norms["mid"] = new_norm_weights(model, s.hidden)
    if s.qk_norm:
        layer.norms["q"], layer.norms["k"] = (new_norm_weights(model, s.head_size) for _ in range(2))
    if s.is_sparse_layer(index):
        _add_expert_weights(model, layer)
    else:
        _add_mlp_weights(model, layer, s.inner)
    if s.packed != "conv":
        layer.norms["in"], layer.norms["mid"] = (new_norm_weights(model, s.hidden), new_norm_weights(model, s.hidden))
    if s.post_norms:
        layer.norms["pre"], layer.norms["post"] = (new_norm_weights(model, s.hidden), new_norm_weights(model, s.hidden))
    return layer


def _add_attention_weights(model: ModelParts, layer: LayerWeights) -> None:
    """Create the projections of queries, keys, values and the result."""
    s, make = model.shape, model.maker.new_linear
    q, kv = s.heads * s.head_size, s.kv_heads * s.head_size
    if s.packed:
        name = "c_attn" if s.packed == "conv" else "qkv_proj"
        layer.linears["qkv"] = make(name, s.hidden, q + 2 * kv, s.bias_qkv)
    else:
        for name, size in (("q", q), ("k", kv), ("v", kv)):
            layer.linears[name] = make(f"{name}_proj", s.hidden, size, s.bias_qkv)
    layer.linears["o"] = make("c_proj" if s.packed == "conv" else "o_proj", q, s.hidden, s.bias_out)


def _add_mlp_weights(model: ModelParts, layer: LayerWeights, inner: int, prefix: str = "") -> None:
    s, make = model.shape, model.maker.new_linear
    if s.gated and s.packed == "phi3":
        layer.linears["gate_up"] = make("gate_up_proj", s.hidden, 2 * inner, False)
    elif s.gated:
        layer.linears[prefix + "gate"] = make("gate_proj", s.hidden, inner, s.bias_mlp)
        layer.linears[prefix + "up"] = make("up_proj", s.hidden, inner, s.bias_mlp)
    else:  # gpt2
        layer.linears["up"] = make("c_fc", s.hidden, inner, s.bias_mlp)
    layer.linears[prefix + "down"] = make("down_proj" if s.gated else "c_proj", inner, s.hidden, s.bias_mlp)


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
