"""Count a model's parameters: from its name, or from its config.json."""

from __future__ import annotations

from gpuready.model.sizes import parse_count

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

MIXTURE_SIZES = {"8x7b": 46_702_792_704, "8x22b": 140_620_634_112}
"""Names whose product is not the size: the experts share everything but their MLP."""

GATED_MODELS = (
    "llama", "mistral", "mixtral", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "gemma", "gemma2",
    "gemma3_text",
)  # fmt: skip
TIED_MODELS = ("gemma", "gemma2", "gemma3_text", "gpt2")
"""Architectures that tie embedding and head unless config.json says otherwise."""

BIASED_MODELS = ("qwen2", "qwen2_moe")
"""Architectures with a bias on query, key and value only."""

QK_NORM_MODELS = ("qwen3", "qwen3_moe", "gemma3_text")
"""Architectures that normalise query and key within each head."""

FOUR_NORM_MODELS = ("gemma2", "gemma3_text")
"""Architectures with four norms per layer instead of two."""


def find_size_in_name(name: str) -> int | None:
    """Return the size in a model's name: ``meta-llama/Llama-3.1-8B-Instruct`` -> 8e9."""
    words = name.rpartition("/")[2].lower().replace("_", "-").split("-")
    for word in words:
        if word in MIXTURE_SIZES:
            return MIXTURE_SIZES[word]
        count = parse_count(word) if word[-1:] in ("b", "m") else None
        if count is not None and count >= 10_000_000:  # 1M in a name is a context length
            return count
    return None


def count_model_parameters(config: Mapping[str, Any]) -> int | None:
    """Count the parameters of a config.json; None for an unknown architecture.

    KeyError, TypeError or ValueError if a number is missing or invalid.
    """
    inner = config.get("text_config")
    if isinstance(inner, dict) and "hidden_size" in inner:
        config = {"model_type": config.get("model_type"), **inner}
    kind = str(config.get("model_type", ""))
    if kind == "gpt2":
        return _count_gpt2(config)
    if kind == "gpt_neox":
        return _count_gpt_neox(config)
    if kind in GATED_MODELS:
        return _count_gated_model(kind, config)
    declared = config.get("num_parameters")
    return declared if isinstance(declared, int) and declared > 0 else None


def _read_config_number(config: Mapping[str, Any], name: str, default: int | None = None) -> int:
    value = config.get(name)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 40:
        raise ValueError(name)
    return value


def _count_gated_model(kind: str, config: Mapping[str, Any]) -> int:
    """Llama-like models: rotary positions, RMS norms, a gated MLP, possibly in many experts."""
    hidden, layers, vocab = (_read_config_number(config, n) for n in ("hidden_size", "num_hidden_layers", "vocab_size"))
    norms = (4 if kind in FOUR_NORM_MODELS else 2) * hidden
    mlps = sum(_count_mlp(kind, config, hidden, layer) for layer in range(min(layers, 10_000)))
    tied = config.get("tie_word_embeddings", kind in TIED_MODELS)
    heads = vocab * hidden * (1 if tied else 2)
    return heads + hidden + layers * (_count_attention(kind, config, hidden) + norms) + mlps


def _count_attention(kind: str, config: Mapping[str, Any], hidden: int) -> int:
    heads = _read_config_number(config, "num_attention_heads")
    groups = _read_config_number(config, "num_key_value_heads", heads)
    width = _read_config_number(config, "head_dim", hidden // max(heads, 1))
    weights = 2 * hidden * heads * width + 2 * hidden * groups * width
    qkv_width = (heads + 2 * groups) * width
    bias = qkv_width if kind in BIASED_MODELS else qkv_width + hidden if config.get("attention_bias") is True else 0
    return weights + bias + (2 * width if kind in QK_NORM_MODELS else 0)


def _count_mlp(kind: str, config: Mapping[str, Any], hidden: int, layer: int) -> int:
    dense = 3 * hidden * _read_config_number(config, "intermediate_size")
    if kind == "mixtral":
        experts = _read_config_number(config, "num_local_experts")
        return experts * dense + hidden * experts
    if not kind.endswith("_moe"):
        extra = 2 * _read_config_number(config, "intermediate_size") + hidden if config.get("mlp_bias") is True else 0
        return dense + extra
    step = _read_config_number(config, "decoder_sparse_step", 1)
    if layer in (config.get("mlp_only_layers") or ()) or step == 0 or (layer + 1) % step:
        return dense
    experts = _read_config_number(config, "num_experts")
    shared = _read_config_number(config, "shared_expert_intermediate_size", 0)
    expert_weights = 3 * hidden * (_read_config_number(config, "moe_intermediate_size") * experts + shared)
    return expert_weights + hidden * experts + (hidden if shared else 0)


def _count_gpt2(config: Mapping[str, Any]) -> int:
    hidden, layers, vocab = (_read_config_number(config, n) for n in ("n_embd", "n_layer", "vocab_size"))
    positions, inner = (_read_config_number(config, "n_positions"), _read_config_number(config, "n_inner", 4 * hidden))
    head = 0 if config.get("tie_word_embeddings", True) else vocab * hidden
    return (vocab + positions) * hidden + head + layers * _count_classic_layer(hidden, inner) + 2 * hidden


def _count_gpt_neox(config: Mapping[str, Any]) -> int:
    hidden, layers, vocab = (_read_config_number(config, n) for n in ("hidden_size", "num_hidden_layers", "vocab_size"))
    heads = vocab * hidden * (1 if config.get("tie_word_embeddings") is True else 2)
    return heads + layers * _count_classic_layer(hidden, _read_config_number(config, "intermediate_size")) + 2 * hidden


def _count_classic_layer(hidden: int, inner: int) -> int:
    """One layer with biases everywhere and two layer norms."""
    attention = hidden * 3 * hidden + 3 * hidden + hidden * hidden + hidden
    return attention + 2 * hidden * inner + inner + hidden + 4 * hidden
