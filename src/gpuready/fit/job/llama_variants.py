"""Shapes of decoders that differ from Llama's in a norm, a bias, an activation or which layers rotate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuready.fit.job.model_shape import ModelShape, parse_common_shape, read_count, read_fraction, read_layer_types
from gpuready.fit.job.records import FitUndecided


def parse_seed_oss(config: Mapping[str, Any], family: str) -> ModelShape:
    return parse_common_shape(config, family).replace(
        bias_qkv=bool(config["attention_bias"]), bias_out=bool(config["attention_out_bias"]),
        dropout_hidden=read_fraction(config, "residual_dropout"),
    )  # fmt: skip


def parse_stablelm(config: Mapping[str, Any], family: str) -> ModelShape:
    if config.get("qk_layernorm") or config.get("use_parallel_residual"):
        raise FitUndecided("a StableLM with normed queries or parallel blocks is not known here; --trace plays it")
    inner = config.get("rope_parameters")
    stated = isinstance(inner, dict) and inner.get("partial_rotary_factor") is not None
    shape = parse_common_shape({**config} if stated else {"partial_rotary_factor": 0.25, **config}, family)
    return shape.replace(
        norm="layer", bias_qkv=bool(config["use_qkv_bias"]), dropout_hidden=read_fraction(config, "hidden_dropout")
    )


def parse_arcee(config: Mapping[str, Any], family: str) -> ModelShape:
    bias = bool(config["attention_bias"])
    return parse_common_shape(config, family).replace(
        gated=False, bias_qkv=bias, bias_out=bias, mlp_names=("up_proj", "down_proj")
    )


def parse_exaone4(config: Mapping[str, Any], family: str) -> ModelShape:
    """EXAONE 4: norms behind each block; with windows, only the layers that have one rotate."""
    layers = read_count(config, "num_hidden_layers")
    shape = parse_common_shape({**config, "sliding_window": None}, family)
    shape = shape.replace(input_norms=False, post_norms=True, qk_norm=True)
    if not config.get("sliding_window"):
        return shape
    window, every = read_count(config, "sliding_window"), read_count(config, "sliding_window_pattern", default=4)
    kinds = read_layer_types(config, layers) or [
        "sliding_attention" if (n + 1) % every else "full_attention" for n in range(layers)
    ]
    sliding = tuple(kind == "sliding_attention" for kind in kinds)
    return shape.replace(windows=tuple(window if one else 0 for one in sliding), rotary_layers=sliding)


def parse_olmoe(config: Mapping[str, Any], family: str) -> ModelShape:
    if config.get("clip_qkv") is not None:
        raise FitUndecided("an OLMoE whose projections are clipped (clip_qkv) is not known here; --trace plays it")
    bias = bool(config["attention_bias"])
    shape = parse_common_shape(config, family)
    return shape.replace(
        bias_qkv=bias, bias_out=bias, qk_norm=True, qk_norm_span="all", experts=read_count(config, "num_experts"),
        experts_per_token=read_count(config, "num_experts_per_tok"), expert_inner=shape.inner,
        normed_router=bool(config["norm_topk_prob"]),
    )  # fmt: skip
