"""Shapes of the families whose layers differ from Llama's; what a config leaves out is transformers' default."""

from __future__ import annotations

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
)
from gpuready.fit.job.records import UnknownLayers

ShapeParser = Callable[[Mapping[str, Any], str], ModelShape]


def parse_family_shape(config: Mapping[str, Any], family: str) -> ModelShape:
    """Return the shape of a family of this module; FitUndecided for any other."""
    parser = FAMILY_PARSERS.get(family)
    if parser is None:
        raise UnknownLayers(
            f"the layers of {family!r} are not written down here; --trace takes them from the torch and transformers of "
            "an environment (--python PATH)"
        )
    return parser(with_defaults(config, family) if family not in MODEL_FAMILIES else config, family)


def with_defaults(config: Mapping[str, Any], family: str) -> dict[str, Any]:
    """Return a config with transformers' defaults for the keys that it does not have."""
    rows = load_catalog("architectures")["architecture"]
    return {**next(row["defaults"] for row in rows if row["type"] == family), **config}


# -- decoders with another order of norms, another rotation or other names ----------------------------------------


def _parse_granite(config: Mapping[str, Any], family: str) -> ModelShape:
    bias = bool(config["attention_bias"])
    return parse_common_shape(config, family).replace(
        bias_qkv=bias, bias_out=bias, scaled_embedding=True, scaled_residual=True, scaled_logits=True
    )


def _parse_smollm3(config: Mapping[str, Any], family: str) -> ModelShape:
    bias = bool(config["attention_bias"])
    shape = parse_common_shape(config, family)
    windows = shape.windows if config.get("use_sliding_window") else ()
    return shape.replace(
        bias_qkv=bias, bias_out=bias, rotary_layers=_rotary_layers(config, shape.layers), windows=windows
    )


def _rotary_layers(config: Mapping[str, Any], layers: int) -> tuple[bool, ...]:
    """Return which layers rotate: ``no_rope_layers`` has a 1 for each that does."""
    stated = config.get("no_rope_layers")
    if stated:
        if not isinstance(stated, (list, tuple)) or len(stated) != layers:
            raise ValueError(f"the config's no_rope_layers must be a list of {layers} numbers, one for each layer")
        return tuple(bool(one) for one in stated)
    every = read_count(config, "no_rope_layer_interval", default=4)
    return tuple((n + 1) % every != 0 for n in range(layers))


def _parse_olmo(config: Mapping[str, Any], family: str) -> ModelShape:
    bias = bool(config["attention_bias"])
    shape = parse_common_shape(config, family)
    return shape.replace(
        norm="wide", bias_qkv=bias, bias_out=bias, input_norms=False, post_norms=True, qk_norm=True, qk_norm_span="all",
        rotary_kind="wide", windows=_every_fourth_full(config, shape.layers) if family == "olmo3" else (),
    )  # fmt: skip


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
        norm="layer", gated=False, bias_qkv=bias, bias_out=bias, bias_mlp=bias, mlp_names=("c_fc", "c_proj"),
        dropout_hidden=read_fraction(config, "residual_dropout"), dropout_embedding=read_fraction(config, "embedding_dropout"),
        windows=(read_count(config, "sliding_window"),) * shape.layers if window else (),
    )  # fmt: skip


def _with_half_rotary(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a config that rotates half of a head unless it says otherwise, beside its rotary parameters or in them."""
    inner = config.get("rope_parameters")
    stated = isinstance(inner, dict) and inner.get("partial_rotary_factor") is not None
    return {**config} if stated else {"partial_rotary_factor": 0.5, **config}


def _parse_glm(config: Mapping[str, Any], family: str) -> ModelShape:
    shape = parse_common_shape(_with_half_rotary(config), family)
    return shape.replace(
        bias_qkv=bool(config["attention_bias"]), fused_gate=True, post_norms=family == "glm4", rotary_kind="pairs"
    )


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


# -- mixtures of experts ------------------------------------------------------------------------------------------


def _parse_granitemoe(config: Mapping[str, Any], family: str) -> ModelShape:
    shape = _parse_granite(config, family)
    return shape.replace(
        router="top", experts=read_count(config, "num_local_experts"), expert_inner=shape.inner,
        experts_per_token=read_count(config, "num_experts_per_tok"),
    )  # fmt: skip


def _parse_gpt_oss(config: Mapping[str, Any], family: str) -> ModelShape:
    shape = parse_common_shape(config, family)
    bias, window = bool(config["attention_bias"]), read_count(config, "sliding_window")
    kinds = read_layer_types(config, shape.layers) or ["sliding_attention", "full_attention"] * shape.layers
    return shape.replace(
        norm="wide", bias_qkv=bias, bias_out=bias, rotary_kind="split", router="top", expert_bias=True, sinks=True,
        windows=tuple(window if kind == "sliding_attention" else 0 for kind in kinds[: shape.layers]),
        experts=read_count(config, "num_local_experts", "num_experts"), expert_inner=shape.inner,
        experts_per_token=read_count(config, "num_experts_per_tok"),
    )  # fmt: skip


def parse_olmoe(config: Mapping[str, Any], family: str) -> ModelShape:
    if config.get("clip_qkv") is not None:
        raise UnknownLayers("an OLMoE whose projections are clipped (clip_qkv) is not known here; --trace plays it")
    bias = bool(config["attention_bias"])
    shape = parse_common_shape(config, family)
    return shape.replace(
        bias_qkv=bias, bias_out=bias, qk_norm=True, qk_norm_span="all", experts=read_count(config, "num_experts"),
        experts_per_token=read_count(config, "num_experts_per_tok"), expert_inner=shape.inner,
        normed_router=bool(config["norm_topk_prob"]),
    )  # fmt: skip


FAMILY_PARSERS: dict[str, ShapeParser] = {
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
