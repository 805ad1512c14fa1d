"""The weights of a decoder's layers, created in module order."""

from __future__ import annotations

from gpuready.fit.projection import Linear
from gpuready.fit.tensor import Tensor

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.fit.layers import Model

NORMS_FIRST = {"neox": ("in", "mid"), "conv": ("in",)}  # norms created before a layer's attention


class Layer:
    """The weights of one decoder layer."""

    __slots__ = ("adapters", "index", "linears", "moe", "norms")

    def __init__(self, index: int) -> None:
        self.index = index
        self.adapters: dict[str, tuple[Tensor, Tensor]] = {}  # of the router and the experts
        self.linears: dict[str, Linear] = {}
        self.norms: dict[str, tuple[Tensor, Tensor | None]] = {}
        self.moe: dict[str, Tensor] = {}

    def tensors(self) -> list[Tensor]:
        """Return every unquantised weight of the layer."""
        found = [t for linear in self.linears.values() for t in linear.tensors()]
        found += [t for pair in self.norms.values() for t in pair if t is not None]
        found += [t for pair in self.adapters.values() for t in pair]
        return [*found, *self.moe.values()]


def norm_of(model: Model, size: int) -> tuple[Tensor, Tensor | None]:
    one = model.maker.norm((size,))
    return one, model.maker.norm((size,)) if model.shape.norm == "layer" else None


def layer_of(model: Model, index: int) -> Layer:
    """Create the weights of a layer in module order."""
    s, layer, make = model.shape, Layer(index), model.maker.linear
    q, kv = s.heads * s.head_size, s.kv_heads * s.head_size
    for name in NORMS_FIRST.get(s.packed, ()):
        layer.norms[name] = norm_of(model, s.hidden)
    if s.packed in ("neox", "conv", "phi3"):
        name = {"neox": "query_key_value", "conv": "c_attn", "phi3": "qkv_proj"}[s.packed]
        layer.linears["qkv"] = make(name, s.hidden, q + 2 * kv, s.bias_qkv)
    else:
        for name, size in (("q", q), ("k", kv), ("v", kv)):
            layer.linears[name] = make(f"{name}_proj", s.hidden, size, s.bias_qkv)
    out = {"neox": "dense", "conv": "c_proj"}.get(s.packed, "dense" if s.parallel == "phi" else "o_proj")
    layer.linears["o"] = make(out, q, s.hidden, s.bias_out)
    if s.packed == "conv":
        layer.norms["mid"] = norm_of(model, s.hidden)
    if s.qk_norm:
        layer.norms["q"], layer.norms["k"] = norm_of(model, s.head_size), norm_of(model, s.head_size)
    if s.sparse(index):
        _experts(model, layer)
    else:
        _mlp(model, layer, s.inner)
    if s.packed not in NORMS_FIRST:
        layer.norms["in"] = norm_of(model, s.hidden)
        if s.parallel != "phi":
            layer.norms["mid"] = norm_of(model, s.hidden)
    if s.post_norms:
        layer.norms["pre"], layer.norms["post"] = norm_of(model, s.hidden), norm_of(model, s.hidden)
    return layer


def _mlp(model: Model, layer: Layer, inner: int, prefix: str = "") -> None:
    s, make = model.shape, model.maker.linear
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


def _experts(model: Model, layer: Layer) -> None:
    s, table = model.shape, model.maker.expert
    layer.moe["router"] = table((s.experts, s.hidden))
    layer.moe["gate_up"] = table((s.experts, 2 * s.expert_inner, s.hidden))
    layer.moe["down"] = table((s.experts, s.hidden, s.expert_inner))
    if s.family != "qwen2_moe":  # peft does not adapt its experts
        for name, ranks in (("router", 1), ("gate_up", 2), ("down", 1)):
            pair = model.maker.beside_expert(layer.moe[name].shape, ranks * model.job.lora_r)
            if pair is not None:
                layer.adapters[name] = pair
    if s.shared_inner:
        _mlp(model, layer, s.shared_inner, prefix="shared_")
        layer.linears["shared"] = model.maker.linear("shared_expert_gate", s.hidden, 1, False)
