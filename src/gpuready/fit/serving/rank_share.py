"""The share of a model that one rank of a tensor- and pipeline-parallel engine holds, in parameters and in cache."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuready.fit.job.model_parser import parse_model_config
from gpuready.fit.job.model_shape import ModelShape
from gpuready.fit.job.parameter_counts import count_parameters
from gpuready.model.record import Record

STORED_BITS = {"awq": 4, "gptq": 4, "fp8": 8, "fbgemm_fp8": 8, "mxfp4": 4, "compressed-tensors": 8, "modelopt": 8}
"""Bits of a stored weight where the checkpoint's config does not say them."""
SCALE_BYTES = {4: 0.03, 8: 0.002}  # bytes of scales for each quantised value


class RankShare(Record):
    """What one rank holds: parameters of layers (quantised or not), of embeddings, and the cache of one token."""

    layers: int
    linear: int  # parameters that a checkpoint may quantise
    other: int  # norms, embeddings and the head
    cache: int  # values of keys and values that one token takes in layers with full attention
    windowed: int  # and in layers with a sliding window
    window: int
    widest: int  # values of one token at the widest moment of a layer
    vocabulary: int


def find_rank_share(config: Mapping[str, Any], tensor: int = 1, pipeline: int = 1) -> RankShare:
    """Return the largest share of any rank. ValueError where the engines refuse the split."""
    shape = parse_model_config(config)
    if shape.heads % tensor:
        raise ValueError(f"{tensor} GPUs cannot share each layer: the model has {shape.heads} attention heads")
    if pipeline > shape.layers:
        raise ValueError(f"{pipeline} pipeline stages are more than the model's {shape.layers} layers")
    layers = -(-shape.layers // pipeline)
    table = -(-shape.vocabulary // tensor) * shape.hidden
    linear = -(-_count_layers(shape) * layers // shape.layers // tensor)
    norms = (2 * layers + 1) * shape.hidden
    tables = table * (1 if shape.tied or pipeline > 1 else 2) + shape.positions * shape.hidden
    full, windowed = _cache_layers(shape, layers)
    cell = _cache_cell(config, shape, tensor)
    return RankShare(
        layers,
        linear,
        norms + tables,
        full * cell,
        windowed * cell,
        max(shape.windows, default=0),
        _widest_moment(shape, tensor),
        -(-shape.vocabulary // tensor),
    )


def _count_layers(shape: ModelShape) -> int:
    tables = shape.vocabulary * (1 if shape.tied else 2) + shape.positions
    return count_parameters(shape) - tables * shape.hidden


def _cache_layers(shape: ModelShape, layers: int) -> tuple[int, int]:
    """Return the number of layers with full attention and with a window."""
    windowed = sum(1 for window in shape.windows if window)
    share = -(-windowed * layers // shape.layers)
    return layers - share, share


def _cache_cell(config: Mapping[str, Any], shape: ModelShape, tensor: int) -> int:
    """Return the values that one layer keeps of a token: latent attention has one vector, which no rank shares."""
    latent = config.get("kv_lora_rank")
    if isinstance(latent, int) and latent > 0:
        return latent + int(config.get("qk_rope_head_dim") or 0)
    return 2 * max(1, -(-shape.kv_heads // tensor)) * shape.head_size


def _widest_moment(shape: ModelShape, tensor: int) -> int:
    """Return the values of one token where a layer holds the most: the residual, its norm and the MLP's parts."""
    inner = (3 if shape.gated else 2) * shape.inner // tensor
    if shape.experts:
        routed = shape.experts_per_token * (
            max(2 * shape.expert_inner // tensor, shape.hidden) + shape.expert_inner // tensor
        )
        inner = max(routed, inner if shape.dense_layers else 0) + 3 * shape.shared_inner // tensor
    attention = (shape.heads + 2 * shape.kv_heads) * shape.head_size // tensor + shape.heads * shape.head_size // tensor
    return 3 * shape.hidden + max(inner, attention)


def weight_bytes(share: RankShare, config: Mapping[str, Any], quant: str, width: int) -> int:
    """Return the bytes of a rank's weights; a checkpoint's own quantisation counts where none is asked for."""
    bits = {"nf4": 4, "fp4": 4, "int8": 8, "fp8": 8}.get(quant, 0) or stored_bits(config)
    if not bits:
        return (share.linear + share.other) * width
    return int(share.linear * (bits / 8 + SCALE_BYTES.get(bits, 0.01))) + share.other * width


def stored_bits(config: Mapping[str, Any]) -> int:
    """Return the bits of a quantised checkpoint's weights; 0 where it is not quantised."""
    stored = config.get("quantization_config")
    if not isinstance(stored, dict):
        return 0
    method = str(stored.get("quant_method") or "").lower()
    bits = stored.get("bits") or stored.get("w_bit")
    if isinstance(bits, int) and 2 <= bits <= 8:
        return bits
    if stored.get("load_in_4bit"):
        return 4
    groups = stored.get("config_groups")
    for group in groups.values() if isinstance(groups, dict) else ():
        weights = group.get("weights") if isinstance(group, dict) else None
        if isinstance(weights, dict) and isinstance(weights.get("num_bits"), int):
            return int(weights["num_bits"])
    return STORED_BITS.get(method, 8 if stored.get("load_in_8bit") else 0)
