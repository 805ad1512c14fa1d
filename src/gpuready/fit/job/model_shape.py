"""Parse a model's config.json into one common shape for all families."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NoReturn

from gpuready.fit.job.records import UnknownLayers
from gpuready.model.record import Record

MAX_CONFIG_NUMBER = 1 << 31
MAX_LAYERS = 1024
CONFIG_SWITCHES = (
    "tie_word_embeddings", "attention_bias", "mlp_bias", "use_sliding_window", "use_parallel_residual", "norm_topk_prob",
    "use_qk_norm", "use_bias", "bias", "new_decoder_architecture", "multi_query", "parallel_attn", "alibi", "qkv_bias",
)  # fmt: skip
# Others ignore attention_bias.
ATTENTION_BIAS_FAMILIES = ("llama", "qwen3", "qwen3_moe", "gemma", "gemma2", "gemma3_text")


SINGLE_KERNEL_ACTIVATIONS = (
    "silu", "swish", "gelu", "gelu_pytorch_tanh", "relu", "relu6", "leaky_relu", "tanh", "sigmoid", "mish", "hardswish",
)  # fmt: skip
COMPOSED_ACTIVATIONS = (  # composed of several kernels in transformers; only gelu_new, which GPT-2 has, is modelled
    "gelu_new", "gelu_fast", "gelu_python", "gelu_python_tanh", "gelu_accurate", "gelu_10", "quick_gelu", "relu2",
    "laplace", "linear", "sqrtsoftplus", "prelu", "xielu",
)  # fmt: skip


class ModelShape(Record):
    """The dimensions and options of a decoder."""

    family: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    inner: int
    vocabulary: int
    tied: bool
    norm: str = "rms"  # rms (Llama), gemma (1 + weight, in fp32), layer (torch's LayerNorm)
    activation: str = "silu"
    gated: bool = True
    packed: str = ""  # how q, k and v are packed: "", conv, phi3
    bias_qkv: bool = False
    bias_out: bool = False
    bias_mlp: bool = False
    bias_head: bool = False
    qk_norm: bool = False
    post_norms: bool = False
    one_norm: bool = False  # of a layer, for attention and MLP
    scaled_embedding: bool = False
    positions: int = 0  # number of learned positions
    rotary: float = 1.0  # fraction of a head that is rotated
    dropout_embedding: float = 0.0
    dropout_attention: float = 0.0
    dropout_hidden: float = 0.0
    softcap_attention: bool = False
    softcap_logits: bool = False
    windows: tuple[int, ...] = ()  # per layer; 0 is full attention
    experts: int = 0
    experts_per_token: int = 0
    expert_inner: int = 0
    shared_inner: int = 0
    dense_layers: tuple[int, ...] = ()
    normed_router: bool = True
    qk_norm_span: str = "head"  # what the norm of queries and keys covers: head, all
    expert_bias: bool = False
    sinks: bool = False  # a learned logit per head that only takes part in the softmax

    def is_sparse_layer(self, layer: int) -> bool:
        return bool(self.experts) and layer not in self.dense_layers


GATED_FAMILIES = (
    "llama",
    "mistral",
    "qwen2",
    "qwen3",
    "gemma",
    "gemma2",
    "gemma3_text",
    "mixtral",
    "qwen2_moe",
    "qwen3_moe",
)
MODEL_FAMILIES = (*GATED_FAMILIES, "phi3", "gpt2")
"""Families whose layers are written down in fit/tape; of those in model_families.py the sizes alone are."""
FAMILY_ALIASES = {
    "gemma3": "gemma3_text", "ministral": "mistral", "codellama": "llama", "qwen2_5_vl": "qwen2",
    "qwen2_5_vl_text": "qwen2", "qwen2_vl": "qwen2", "qwen2_vl_text": "qwen2", "qwen3_vl_text": "qwen3",
}  # fmt: skip


def refuse_unknown_layers(family: str) -> NoReturn:
    raise UnknownLayers(
        f"the layers of {family!r} are not written down here; --trace takes them from the torch and transformers of "
        "an environment (--python PATH)"
    )


def read_count(config: Mapping[str, Any], *names: str, default: int | None = None) -> int:
    """Return the first of these keys as a whole number from 1 up."""
    for name in names:
        value = config.get(name)
        if value is not None:
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_CONFIG_NUMBER:
                raise ValueError(f"the config's {name} must be a whole number from 1 up, not {value!r}")
            return value
    if default is None:
        raise ValueError(f"the config has no {names[0]}")
    return default


def read_layer_numbers(config: Mapping[str, Any], name: str) -> list[int]:
    """Return a list of layer numbers."""
    numbers = config.get(name) or []
    if not isinstance(numbers, list) or not all(
        isinstance(one, int) and 0 <= one <= MAX_CONFIG_NUMBER for one in numbers
    ):
        raise ValueError(f"the config's {name} must be a list of the numbers of layers")
    return numbers


def read_fraction(config: Mapping[str, Any], *names: str, default: float = 0.0) -> float:
    for name in names:
        value = config.get(name)
        if value is not None:
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
                raise ValueError(f"the config's {name} must be between 0 and 1, not {value!r}")
            return float(value)
    return default


def read_activation(config: Mapping[str, Any], names: tuple[str, ...], default: str) -> str:
    """Return the activation function of the MLP."""
    for name in names:
        value = config.get(name)
        if value is None:
            continue
        if value not in SINGLE_KERNEL_ACTIVATIONS and value not in COMPOSED_ACTIVATIONS:
            raise ValueError(
                f"the config's {name} must be an activation that transformers has, such as silu, not {value!r}"
            )
        if value in COMPOSED_ACTIVATIONS and value != "gelu_new":
            raise UnknownLayers(f"the steps of the activation {value} ({name}) are not known here; --trace plays them")
        return str(value)
    return default


def parse_common_shape(config: Mapping[str, Any], family: str) -> ModelShape:
    hidden = read_count(config, "hidden_size")
    heads = read_count(config, "num_attention_heads")
    gemma = family.startswith("gemma")
    own = {} if family == "gpt_neox" else config  # gpt_neox ignores head_dim
    head_size = read_count(own, "head_dim", default=_default_head_size(family, hidden, heads))
    layers = read_count(config, "num_hidden_layers")
    if layers > MAX_LAYERS:
        raise ValueError(f"the config's num_hidden_layers is {layers}; no model has that many")
    shape = ModelShape(
        family=family,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=read_count(config, "num_key_value_heads", default=_default_kv_heads(family, heads)),
        head_size=head_size,
        inner=read_count(config, "intermediate_size"),
        vocabulary=read_count(config, "vocab_size"),
        tied=bool(config.get("tie_word_embeddings", gemma)),
        norm="gemma" if gemma else "layer" if family in ("phi", "gpt_neox") else "rms",
        activation=read_activation(
            config, ("hidden_activation", "hidden_act"), "gelu_pytorch_tanh" if gemma else "silu"
        ),
        dropout_attention=read_fraction(config, "attention_dropout"),
    )
    return _apply_family_details(shape, config, family)


def _default_head_size(family: str, hidden: int, heads: int) -> int | None:
    if family in ("gemma", "gemma2", "gemma3_text"):
        return 256
    if family in ("qwen3", "qwen3_moe"):
        return 128
    return max(1, hidden // heads)


def _default_kv_heads(family: str, heads: int) -> int:
    """Return transformers' default for an absent num_key_value_heads."""
    return {"mistral": 8, "mixtral": 8, "gemma2": 4, "gemma3_text": 4, "qwen3_moe": 4}.get(family, heads)


def _apply_family_details(shape: ModelShape, config: Mapping[str, Any], family: str) -> ModelShape:
    """Set the fields in which families differ."""
    bias = family in ATTENTION_BIAS_FAMILIES and bool(config.get("attention_bias", False))
    shape = shape.replace(bias_qkv=bias, bias_out=bias, bias_mlp=bool(config.get("mlp_bias", False)))
    if family in ("qwen2", "qwen2_moe"):
        shape = shape.replace(bias_qkv=True, bias_out=False)
    if family in ("qwen3", "qwen3_moe", "gemma3_text"):
        shape = shape.replace(qk_norm=True)
    if family.startswith("gemma"):
        shape = shape.replace(scaled_embedding=True, post_norms=family != "gemma")
    if family == "gemma2":
        shape = shape.replace(softcap_attention=config.get("attn_logit_softcapping", 50.0) is not None)
    if family in ("gemma2", "gemma3_text"):
        default = 30.0 if family == "gemma2" else None
        shape = shape.replace(softcap_logits=config.get("final_logit_softcapping", default) is not None)
    if family == "phi3":
        shape = shape.replace(packed="phi3", dropout_hidden=read_fraction(config, "resid_pdrop"))
    if family == "phi":
        shape = shape.replace(one_norm=True, gated=False, bias_qkv=True, bias_out=True, bias_mlp=True, bias_head=True)
    if family == "gpt_neox":
        bias = bool(config.get("attention_bias", True))
        shape = shape.replace(gated=False, bias_qkv=bias, bias_out=bias, bias_mlp=True, kv_heads=shape.heads)
    shape = shape.replace(rotary=_rotary_fraction(config, family), windows=_layer_windows(config, family, shape.layers))
    return _apply_expert_fields(shape, config, family)


def _rotary_fraction(config: Mapping[str, Any], family: str) -> float:
    """Return the fraction of a head that is rotated."""
    inner = config.get("rope_parameters")
    for source in (config, inner if isinstance(inner, dict) else {}):
        if source.get("partial_rotary_factor") is not None:
            return read_fraction(source, "partial_rotary_factor")
    default = {"gpt_neox": 0.25, "phi": 0.5}.get(family, 1.0)
    return read_fraction(config, "rotary_pct", default=default)


def _layer_windows(config: Mapping[str, Any], family: str, layers: int) -> tuple[int, ...]:
    default = 4096 if family in ("mistral", "gemma2", "gemma3_text") else None
    window = config.get("sliding_window", default)
    if window is not None and (not isinstance(window, int) or isinstance(window, bool)):
        raise ValueError(f"the config's sliding_window must be a whole number or null, not {window!r}")
    kinds = read_layer_types(config, layers)
    if window is None or window < 1:
        return ()
    if kinds:
        return tuple(window if k == "sliding_attention" else 0 for k in kinds)
    if family == "gemma2":
        return tuple(0 if n % 2 else window for n in range(layers))
    if family == "gemma3_text":
        every = read_count(config, "sliding_window_pattern", default=6)
        return tuple(0 if (n + 1) % every == 0 else window for n in range(layers))
    if family in ("mistral", "mixtral", "phi3"):
        return (window,) * layers
    if family.startswith("qwen") and config.get("use_sliding_window"):
        first = config.get("max_window_layers", 28)
        if not isinstance(first, int):
            raise ValueError(f"the config's max_window_layers must be a whole number, not {first!r}")
        return tuple(window if n >= first else 0 for n in range(layers))
    return ()


def read_layer_types(config: Mapping[str, Any], layers: int) -> list[str]:
    """Return the attention type of each layer, if the config lists them."""
    kinds = config.get("layer_types")
    if kinds is None:
        return []
    if not isinstance(kinds, (list, tuple)) or not all(isinstance(kind, str) for kind in kinds):
        raise ValueError("the config's layer_types must be a list of names, one for each layer")
    if len(kinds) != layers:
        raise ValueError(f"the config's layer_types names {len(kinds)} layers, and there are {layers}")
    for kind in kinds:
        if kind not in ("full_attention", "sliding_attention"):
            raise UnknownLayers(f"layers of the type {kind!r} (layer_types) are not known here; --trace plays them")
    return list(kinds)


def _apply_expert_fields(shape: ModelShape, config: Mapping[str, Any], family: str) -> ModelShape:
    if family == "mixtral":
        return shape.replace(
            experts=read_count(config, "num_local_experts", default=8),
            experts_per_token=read_count(config, "num_experts_per_tok", default=2),
            expert_inner=shape.inner,
        )
    if family not in ("qwen2_moe", "qwen3_moe"):
        return shape
    step = read_count(config, "decoder_sparse_step", default=1)
    dense = set(read_layer_numbers(config, "mlp_only_layers")) | {n for n in range(shape.layers) if (n + 1) % step}
    shared = read_count(config, "shared_expert_intermediate_size", default=5632) if family == "qwen2_moe" else 0
    return shape.replace(
        experts=read_count(config, "num_experts", default=60 if shared else 128),
        experts_per_token=read_count(config, "num_experts_per_tok", default=4 if shared else 8),
        expert_inner=read_count(config, "moe_intermediate_size", default=1408 if shared else 768),
        shared_inner=shared,
        dense_layers=tuple(sorted(dense)),
        normed_router=bool(config.get("norm_topk_prob", False)),
    )
