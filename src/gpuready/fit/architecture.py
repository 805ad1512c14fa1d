"""Parse a model's config.json into one common shape for all families."""

from __future__ import annotations

from gpuready.fit.job import Undecided
from gpuready.noun import Noun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

LARGEST = 1 << 31
MOST_LAYERS = 1024
SWITCHES = (
    "tie_word_embeddings",
    "attention_bias",
    "mlp_bias",
    "use_sliding_window",
    "use_parallel_residual",
    "norm_topk_prob",
)
BIASED = (
    "llama",
    "qwen3",
    "qwen3_moe",
    "gemma",
    "gemma2",
    "gemma3_text",
)  # the others ignore attention_bias


ONE_KERNEL = (
    "silu", "swish", "gelu", "gelu_pytorch_tanh", "relu", "relu6", "leaky_relu", "tanh", "sigmoid", "mish", "hardswish",
)  # fmt: skip
CHAINS = (  # composed of several kernels in transformers; only gelu_new is modelled
    "gelu_new", "gelu_fast", "gelu_python", "gelu_python_tanh", "gelu_accurate", "gelu_10", "quick_gelu", "relu2",
    "laplace", "linear", "sqrtsoftplus", "prelu", "xielu",
)  # fmt: skip


class Shape(Noun):
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
    packed: str = ""  # how q, k and v are packed: "", neox, conv, phi3
    bias_qkv: bool = False
    bias_out: bool = False
    bias_mlp: bool = False
    bias_head: bool = False
    qk_norm: bool = False
    post_norms: bool = False
    parallel: str = ""  # neox: two norms, one sum; phi: one norm for both
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

    def sparse(self, layer: int) -> bool:
        return bool(self.experts) and layer not in self.dense_layers


GATED = (
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
FAMILIES = (*GATED, "phi", "phi3", "gpt_neox", "gpt2")
ALIASES = {"gemma3": "gemma3_text", "ministral": "mistral", "smollm3": "", "codellama": "llama"}


def read(config: Mapping[str, Any]) -> Shape:
    """Return the shape that a config describes; FitUndecided for an unknown family, ValueError for invalid values."""
    if not hasattr(config, "get"):
        raise ValueError("a model's config must be an object with fields such as hidden_size")
    if isinstance(config.get("text_config"), dict) and "hidden_size" not in config:
        config = config["text_config"]
    family = str(config.get("model_type") or "")
    family = ALIASES.get(family, family)
    if not family:
        raise Undecided(
            "the model's config has no model_type, so its layers are unknown (--trace takes them from the torch that is installed)"
        )
    if family not in FAMILIES:
        raise Undecided(
            f"the architecture {family!r} is not one whose layers are known here ({', '.join(FAMILIES)}); "
            "--trace takes them from the torch that is installed"
        )
    for name in SWITCHES:
        if not isinstance(config.get(name), (bool, type(None))):
            raise ValueError(f"the config's {name} must be true or false, not {config[name]!r}")
    shape = _gpt2(config) if family == "gpt2" else _common(config, family)
    for name, most in (
        ("layers", MOST_LAYERS),
        ("vocabulary", 1 << 26),
        ("experts", 1 << 14),
        ("hidden", 1 << 22),
    ):
        if getattr(shape, name) > most:
            raise ValueError(f"the config has {name} {getattr(shape, name)}; no model has more than {most}")
    if shape.heads % shape.kv_heads:
        raise ValueError(
            f"num_attention_heads ({shape.heads}) must be a multiple of the key/value heads ({shape.kv_heads})"
        )
    if shape.hidden % shape.heads and family in ("llama", "gpt_neox", "gpt2"):  # transformers refuses it too
        raise ValueError(f"hidden_size ({shape.hidden}) must be a multiple of the heads ({shape.heads})")
    if shape.head_size % 2 and shape.rotary == 1.0:
        raise ValueError(f"the size of a head ({shape.head_size}) must be even: its halves turn in pairs")
    return shape


def _count(config: Mapping[str, Any], *names: str, default: int | None = None) -> int:
    """Return the first of these keys as a whole number from 1 up."""
    for name in names:
        value = config.get(name)
        if value is not None:
            if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST:
                raise ValueError(f"the config's {name} must be a whole number from 1 up, not {value!r}")
            return value
    if default is None:
        raise ValueError(f"the config has no {names[0]}")
    return default


def _layers(config: Mapping[str, Any], name: str) -> list[int]:
    """Return a list of layer numbers."""
    given = config.get(name) or []
    if not isinstance(given, list) or not all(isinstance(one, int) and 0 <= one <= LARGEST for one in given):
        raise ValueError(f"the config's {name} must be a list of the numbers of layers")
    return given


def _share(config: Mapping[str, Any], *names: str, default: float = 0.0) -> float:
    for name in names:
        value = config.get(name)
        if value is not None:
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
                raise ValueError(f"the config's {name} must be between 0 and 1, not {value!r}")
            return float(value)
    return default


def _activation(config: Mapping[str, Any], names: tuple[str, ...], default: str) -> str:
    """Return the activation function of the MLP."""
    for name in names:
        value = config.get(name)
        if value is None:
            continue
        if value not in ONE_KERNEL and value not in CHAINS:
            raise ValueError(
                f"the config's {name} must be an activation that transformers has, such as silu, not {value!r}"
            )
        if value in CHAINS and value != "gelu_new":
            raise Undecided(
                f"the steps of the activation {value} ({name}) are not known here; --trace plays them"
            )
        return str(value)
    return default


def _common(config: Mapping[str, Any], family: str) -> Shape:
    hidden = _count(config, "hidden_size")
    heads = _count(config, "num_attention_heads")
    gemma = family.startswith("gemma")
    own = {} if family == "gpt_neox" else config  # gpt_neox ignores head_dim
    head_size = _count(own, "head_dim", default=_head_size(family, hidden, heads))
    layers = _count(config, "num_hidden_layers")
    if layers > MOST_LAYERS:
        raise ValueError(f"the config's num_hidden_layers is {layers}; no model has that many")
    shape = Shape(
        family=family,
        hidden=hidden,
        layers=layers,
        heads=heads,
        kv_heads=_count(config, "num_key_value_heads", default=_kv_heads(family, heads)),
        head_size=head_size,
        inner=_count(config, "intermediate_size"),
        vocabulary=_count(config, "vocab_size"),
        tied=bool(config.get("tie_word_embeddings", gemma)),
        norm="gemma" if gemma else "layer" if family in ("phi", "gpt_neox") else "rms",
        activation=_activation(
            config, ("hidden_activation", "hidden_act"), "gelu_pytorch_tanh" if gemma else "silu"
        ),
        dropout_attention=_share(config, "attention_dropout"),
    )
    return _details(shape, config, family)


def _head_size(family: str, hidden: int, heads: int) -> int | None:
    if family in ("gemma", "gemma2", "gemma3_text"):
        return 256
    if family in ("qwen3", "qwen3_moe"):
        return 128
    return max(1, hidden // heads)


def _kv_heads(family: str, heads: int) -> int:
    """Return transformers' default for an absent num_key_value_heads."""
    return {"mistral": 8, "mixtral": 8, "gemma2": 4, "gemma3_text": 4, "qwen3_moe": 4}.get(family, heads)


def _details(shape: Shape, config: Mapping[str, Any], family: str) -> Shape:
    """Set the fields in which families differ."""
    bias = family in BIASED and bool(config.get("attention_bias", False))
    shape = shape.but(bias_qkv=bias, bias_out=bias, bias_mlp=bool(config.get("mlp_bias", False)))
    if family in ("qwen2", "qwen2_moe"):
        shape = shape.but(bias_qkv=True, bias_out=False)
    if family in ("qwen3", "qwen3_moe", "gemma3_text"):
        shape = shape.but(qk_norm=True)
    if family.startswith("gemma"):
        shape = shape.but(scaled_embedding=True, post_norms=family != "gemma")
    if family == "gemma2":
        shape = shape.but(softcap_attention=config.get("attn_logit_softcapping", 50.0) is not None)
    if family in ("gemma2", "gemma3_text"):
        default = 30.0 if family == "gemma2" else None
        shape = shape.but(softcap_logits=config.get("final_logit_softcapping", default) is not None)
    if family == "phi3":
        shape = shape.but(packed="phi3", dropout_hidden=_share(config, "resid_pdrop"))
    if family == "phi":
        shape = shape.but(
            parallel="phi", gated=False, bias_qkv=True, bias_out=True, bias_mlp=True, bias_head=True,
            dropout_hidden=_share(config, "resid_pdrop"), dropout_embedding=_share(config, "embd_pdrop"),
            activation=_activation(config, ("hidden_act",), "gelu_new"),
        )  # fmt: skip
    if family == "gpt_neox":
        bias = bool(config.get("attention_bias", True))
        shape = shape.but(
            packed="neox", gated=False, bias_qkv=bias, bias_out=bias, bias_mlp=True, kv_heads=shape.heads,
            parallel="neox" if config.get("use_parallel_residual", True) else "",
            dropout_hidden=_share(config, "hidden_dropout"), dropout_embedding=_share(config, "hidden_dropout"),
            activation=_activation(config, ("hidden_act",), "gelu"),
        )  # fmt: skip
    shape = shape.but(rotary=_rotary(config, family), windows=_windows(config, family, shape.layers))
    return _experts(shape, config, family)


def _rotary(config: Mapping[str, Any], family: str) -> float:
    """Return the fraction of a head that is rotated."""
    inner = config.get("rope_parameters")
    for source in (config, inner if isinstance(inner, dict) else {}):
        if source.get("partial_rotary_factor") is not None:
            return _share(source, "partial_rotary_factor")
    default = {"gpt_neox": 0.25, "phi": 0.5}.get(family, 1.0)
    return _share(config, "rotary_pct", default=default)


def _windows(config: Mapping[str, Any], family: str, layers: int) -> tuple[int, ...]:
    default = 4096 if family in ("mistral", "gemma2", "gemma3_text") else None
    window = config.get("sliding_window", default)
    if window is not None and (not isinstance(window, int) or isinstance(window, bool)):
        raise ValueError(f"the config's sliding_window must be a whole number or null, not {window!r}")
    kinds = _kinds(config, layers)
    if window is None or window < 1:
        return ()
    if kinds:
        return tuple(window if k == "sliding_attention" else 0 for k in kinds)
    if family == "gemma2":
        return tuple(0 if n % 2 else window for n in range(layers))
    if family == "gemma3_text":
        every = _count(config, "sliding_window_pattern", default=6)
        return tuple(0 if (n + 1) % every == 0 else window for n in range(layers))
    if family in ("mistral", "mixtral", "phi3"):
        return (window,) * layers
    if family.startswith("qwen") and config.get("use_sliding_window"):
        first = config.get("max_window_layers", 28)
        if not isinstance(first, int):
            raise ValueError(f"the config's max_window_layers must be a whole number, not {first!r}")
        return tuple(window if n >= first else 0 for n in range(layers))
    return ()


def _kinds(config: Mapping[str, Any], layers: int) -> list[str]:
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
            raise Undecided(
                f"layers of the type {kind!r} (layer_types) are not known here; --trace plays them"
            )
    return list(kinds)


def _experts(shape: Shape, config: Mapping[str, Any], family: str) -> Shape:
    if family == "mixtral":
        return shape.but(
            experts=_count(config, "num_local_experts", default=8),
            experts_per_token=_count(config, "num_experts_per_tok", default=2),
            expert_inner=shape.inner,
        )
    if family not in ("qwen2_moe", "qwen3_moe"):
        return shape
    step = _count(config, "decoder_sparse_step", default=1)
    dense = set(_layers(config, "mlp_only_layers")) | {n for n in range(shape.layers) if (n + 1) % step}
    shared = _count(config, "shared_expert_intermediate_size", default=5632) if family == "qwen2_moe" else 0
    return shape.but(
        experts=_count(config, "num_experts", default=60 if shared else 128),
        experts_per_token=_count(config, "num_experts_per_tok", default=4 if shared else 8),
        expert_inner=_count(config, "moe_intermediate_size", default=1408 if shared else 768),
        shared_inner=shared,
        dense_layers=tuple(sorted(dense)),
        normed_router=bool(config.get("norm_topk_prob", False)),
    )


def _gpt2(config: Mapping[str, Any]) -> Shape:
    hidden = _count(config, "n_embd", "hidden_size", default=768)
    heads = _count(config, "n_head", "num_attention_heads", default=12)
    return Shape(
        family="gpt2", hidden=hidden, layers=_count(config, "n_layer", "num_hidden_layers", default=12),
        heads=heads, kv_heads=heads, head_size=max(1, hidden // heads),
        inner=_count(config, "n_inner", default=4 * hidden), vocabulary=_count(config, "vocab_size", default=50257),
        tied=bool(config.get("tie_word_embeddings", True)), norm="layer", gated=False, packed="conv",
        activation=_activation(config, ("activation_function",), "gelu_new"), bias_qkv=True, bias_out=True, bias_mlp=True,
        positions=_count(config, "n_positions", "max_position_embeddings", default=1024), rotary=0.0,
        dropout_embedding=_share(config, "embd_pdrop", default=0.1),
        dropout_attention=_share(config, "attn_pdrop", default=0.1),
        dropout_hidden=_share(config, "resid_pdrop", default=0.1),
    )  # fmt: skip
