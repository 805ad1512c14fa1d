"""Sizes of families beyond the first: of their parameters and caches. What a config leaves out is transformers' default."""

from collections.abc import Callable, Mapping
from typing import Any

from gpuready.catalog import load_catalog
from gpuready.fit.job.model_shape import (
    MODEL_FAMILIES,
    ModelShape,
    parse_common_shape,
    read_activation,
    read_count,
    read_fraction,
    read_layer_types,
    refuse_unknown_layers,
)

ShapeParser = Callable[[Mapping[str, Any], str], ModelShape]


def parse_family_shape(config: Mapping[str, Any], family: str) -> ModelShape:
    """Return the shape of a family of this module; FitUndecided for any other."""
    parser = FAMILY_PARSERS.get(family)
    if parser is None:
        refuse_unknown_layers(family)
    return parser(with_defaults(config, family) if family not in MODEL_FAMILIES else config, family)


def with_defaults(config: Mapping[str, Any], family: str) -> dict[str, Any]:
    """Return a config with transformers' defaults for the keys that it does not have."""
    rows = load_catalog("architectures")["architecture"]
    return {**next((row["defaults"] for row in rows if row["type"] == family), {}), **config}


def _parse_granite(config: Mapping[str, Any], family: str) -> ModelShape:
    bias = bool(config["attention_bias"])
    return parse_common_shape(config, family).replace(bias_qkv=bias, bias_out=bias)


def _parse_smollm3(config: Mapping[str, Any], family: str) -> ModelShape:
    shape = _parse_granite(config, family)
    return shape if config.get("use_sliding_window") else shape.replace(windows=())


def _parse_olmo(config: Mapping[str, Any], family: str) -> ModelShape:
    shape = _parse_granite(config, family)
    windows = _every_fourth_full(config, shape.layers) if family == "olmo3" else ()
    return shape.replace(qk_norm=True, qk_norm_span="all", windows=windows)


def _every_fourth_full(config: Mapping[str, Any], layers: int) -> tuple[int, ...]:
    """Return the window of each layer, where every fourth has none unless ``layer_types`` says otherwise."""
    window = read_count(config, "sliding_window", default=4096)
    every = read_count(config, "sliding_window_pattern", default=4)
    kinds = read_layer_types(config, layers)
    if kinds:
        return tuple(window if kind == "sliding_attention" else 0 for kind in kinds)
    return tuple(window if (n + 1) % every else 0 for n in range(layers))


def _parse_starcoder2(config: Mapping[str, Any], family: str) -> ModelShape:
    bias = bool(config["use_bias"])
    shape = parse_common_shape(config, family)
    window = config.get("sliding_window")
    return shape.replace(
        norm="layer", gated=False, bias_qkv=bias, bias_out=bias, bias_mlp=bias,
        windows=(read_count(config, "sliding_window"),) * shape.layers if window else (),
    )  # fmt: skip


def _parse_glm(config: Mapping[str, Any], family: str) -> ModelShape:
    shape = parse_common_shape(config, family)
    return shape.replace(bias_qkv=bool(config["attention_bias"]), post_norms=family == "glm4")


def _parse_gpt2(config: Mapping[str, Any], family: str) -> ModelShape:
    hidden = read_count(config, "n_embd", "hidden_size", default=768)
    heads = read_count(config, "n_head", "num_attention_heads", default=12)
    return ModelShape(
        family=family, hidden=hidden, layers=read_count(config, "n_layer", "num_hidden_layers", default=12),
        heads=heads, kv_heads=heads, head_size=max(1, hidden // heads),
        inner=read_count(config, "n_inner", default=4 * hidden), vocabulary=read_count(config, "vocab_size", default=50257),
        tied=bool(config.get("tie_word_embeddings", True)), norm="layer", gated=False, packed="conv",
        activation=read_activation(config, ("activation_function",), "gelu_new"), bias_qkv=True, bias_out=True, bias_mlp=True,
        positions=read_count(config, "n_positions", "max_position_embeddings", default=1024), rotary=0.0,
        dropout_embedding=read_fraction(config, "embd_pdrop", default=0.1),
        dropout_attention=read_fraction(config, "attn_pdrop", default=0.1),
        dropout_hidden=read_fraction(config, "resid_pdrop", default=0.1),
    )  # fmt: skip


def _parse_granitemoe(config: Mapping[str, Any], family: str) -> ModelShape:
    shape = _parse_granite(config, family)
    return shape.replace(
        experts=read_count(config, "num_local_experts"), expert_inner=shape.inner,
        experts_per_token=read_count(config, "num_experts_per_tok"),
    )  # fmt: skip


def _parse_gpt_oss(config: Mapping[str, Any], family: str) -> ModelShape:
    shape = parse_common_shape(config, family)
    bias, window = bool(config["attention_bias"]), read_count(config, "sliding_window")
    kinds = read_layer_types(config, shape.layers) or ["sliding_attention", "full_attention"] * shape.layers
    return shape.replace(
        bias_qkv=bias, bias_out=bias, expert_bias=True, sinks=True,
        windows=tuple(window if kind == "sliding_attention" else 0 for kind in kinds[: shape.layers]),
        experts=read_count(config, "num_local_experts", "num_experts"), expert_inner=shape.inner,
        experts_per_token=read_count(config, "num_experts_per_tok"),
    )  # fmt: skip


def parse_olmoe(config: Mapping[str, Any], family: str) -> ModelShape:
    return _parse_olmo(config, family).replace(
        experts=read_count(config, "num_experts"), experts_per_token=read_count(config, "num_experts_per_tok"),
        expert_inner=read_count(config, "intermediate_size"),
    )  # fmt: skip


FAMILY_PARSERS: dict[str, ShapeParser] = {
    "phi": parse_common_shape,
    "gpt_neox": parse_common_shape,
    "olmoe": parse_olmoe,
    "gpt2": _parse_gpt2,
    "granite": _parse_granite,
    "smollm3": _parse_smollm3,
    "olmo2": _parse_olmo,
    "olmo3": _parse_olmo,
    "starcoder2": _parse_starcoder2,
    "glm": _parse_glm,
    "glm4": _parse_glm,
    "granitemoe": _parse_granitemoe,
    "gpt_oss": _parse_gpt_oss,
}
