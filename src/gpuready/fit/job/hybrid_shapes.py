"""Shapes of models whose layers mix tokens by a recurrence, and how many parameters these layers have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuready.fit.job.model_shape import ModelShape, parse_common_shape, read_count, read_layer_numbers
from gpuready.fit.job.records import FitUndecided

QWEN_SPLIT = ("qwen3_5_text", "qwen3_5_moe_text")  # one projection each; Qwen3-Next packs them


def parse_qwen3_next(config: Mapping[str, Any], family: str) -> ModelShape:
    """Qwen3-Next and Qwen3.5: a gated delta net in most layers, gated attention in the others."""
    layers = read_count(config, "num_hidden_layers")
    plain = {key: value for key, value in config.items() if key != "layer_types"}
    inner = config.get("intermediate_size") or config["moe_intermediate_size"]
    shape = parse_common_shape({"partial_rotary_factor": 0.25, **plain, "intermediate_size": inner}, family)
    bias = bool(config["attention_bias"])
    sizes = {
        "key_heads": read_count(config, "linear_num_key_heads"), "value_heads": read_count(config, "linear_num_value_heads"),
        "key_size": read_count(config, "linear_key_head_dim"), "value_size": read_count(config, "linear_value_head_dim"),
        "kernel": read_count(config, "linear_conv_kernel_dim"),
    }  # fmt: skip
    if sizes["value_heads"] % sizes["key_heads"]:
        raise ValueError("linear_num_value_heads must be a multiple of linear_num_key_heads")
    shape = shape.replace(
        norm="gemma", qk_norm=True, bias_qkv=bias, bias_out=bias, sizes=sizes, mixers=_read_mixers(config, layers)
    )
    return _with_shared_experts(shape, config) if config.get("num_experts") else shape


def _read_mixers(config: Mapping[str, Any], layers: int) -> tuple[str, ...]:
    """Return what mixes the tokens of each layer: ``delta`` or, as in every fourth, ``attention``."""
    kinds = config.get("layer_types")
    if kinds is None:
        every = read_count(config, "full_attention_interval", default=4)
        return tuple("delta" if (n + 1) % every else "attention" for n in range(layers))
    if not isinstance(kinds, (list, tuple)) or len(kinds) != layers:
        raise ValueError(f"the config's layer_types must be a list of {layers} names, one for each layer")
    known = {"linear_attention": "delta", "full_attention": "attention"}
    for kind in kinds:
        if kind not in known:
            raise FitUndecided(f"layers of the type {kind!r} (layer_types) are not known here; --trace plays them")
    return tuple(known[kind] for kind in kinds)


def _with_shared_experts(shape: ModelShape, config: Mapping[str, Any]) -> ModelShape:
    step = read_count(config, "decoder_sparse_step", default=1)
    dense = set(read_layer_numbers(config, "mlp_only_layers")) | {n for n in range(shape.layers) if (n + 1) % step}
    return shape.replace(
        experts=read_count(config, "num_experts"), experts_per_token=read_count(config, "num_experts_per_tok"),
        expert_inner=read_count(config, "moe_intermediate_size"), dense_layers=tuple(sorted(dense)),
        shared_inner=read_count(config, "shared_expert_intermediate_size"),
        normed_router=bool(config.get("norm_topk_prob", True)),
    )  # fmt: skip
