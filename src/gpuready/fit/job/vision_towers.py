"""Vision towers: the weights that a model that sees has beside its language model, in module order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuready.catalog import load_catalog
from gpuready.fit.job.model_shape import TowerWeight, read_count

Weights = tuple["TowerWeight", ...]


TOWER_TYPES = {
    "qwen2_vl": "qwen2_vl_vision", "qwen2_vl_text": "qwen2_vl_vision", "qwen2_5_vl": "qwen2_5_vl_vision",
    "qwen2_5_vl_text": "qwen2_5_vl_vision", "qwen3_vl_text": "qwen3_vl_vision", "qwen3_vl_moe_text": "qwen3_vl_vision",
    "gemma3_text": "siglip_vision_model",
}  # fmt: skip
"""The tower of each type of language model."""


def has_known_tower(config: Mapping[str, Any], inner: Mapping[str, Any]) -> bool:
    """Whether a config has a tower whose weights are known, by the type of its language model."""
    return isinstance(config.get("vision_config"), dict) and inner.get("model_type") in TOWER_TYPES


def name_text_type(config: Mapping[str, Any], inner: dict[str, Any]) -> dict[str, Any]:
    """Return a nested config with its type: transformers knows it by the outer one."""
    kind = f"{config.get('model_type')}_text"
    return {"model_type": kind, **inner} if kind in TOWER_TYPES else inner


def count_rotary_grids(config: Mapping[str, Any]) -> int:
    """Return how many positions a token has: Qwen's models that see count time, height and width."""
    return 3 if TOWER_TYPES.get(str(config.get("model_type") or ""), "").startswith("qwen") else 1


def parse_vision_tower(config: Mapping[str, Any]) -> Weights:
    """Return the weights of the tower of a language model's config; empty where it has none that is known here."""
    if not has_known_tower(config, config):
        return ()
    kind, vision = TOWER_TYPES[str(config["model_type"])], config["vision_config"]
    rows = load_catalog("architectures")["architecture"]
    defaults = next(row["defaults"] for row in rows if row["type"] == kind)
    return _TOWERS[kind]({**defaults, **vision}, read_count(config, "hidden_size"))


def _linear(name: str, size: int, out: int) -> TowerWeight:
    return TowerWeight((out, size), name, True)


def _layer_norm(size: int) -> TowerWeight:
    return TowerWeight((size,), bias=True)


def _parse_siglip(v: Mapping[str, Any], text_hidden: int) -> Weights:
    """SigLIP as Gemma 3 has it: with a projection behind it, and mostly without its pooling head."""
    hidden, inner, patch = (read_count(v, name) for name in ("hidden_size", "intermediate_size", "patch_size"))
    mlp = _linear("fc1", hidden, inner), _linear("fc2", inner, hidden)
    attention = tuple(_linear(name, hidden, hidden) for name in ("k_proj", "v_proj", "q_proj", "out_proj"))
    layer = _layer_norm(hidden), *attention, _layer_norm(hidden), *mlp
    head: Weights = ()
    if v.get("vision_use_head", True):
        packed = TowerWeight((1, 1, hidden)), TowerWeight((3 * hidden, hidden), bias=True)
        head = *packed, attention[-1], _layer_norm(hidden), *mlp
    positions = (read_count(v, "image_size") // patch) ** 2
    first = (
        TowerWeight((hidden, read_count(v, "num_channels"), patch, patch), bias=True),
        TowerWeight((positions, hidden)),
    )
    projection = TowerWeight((hidden, text_hidden)), TowerWeight((hidden,))
    return (*first, *layer * _read_depth(v, "num_hidden_layers"), _layer_norm(hidden), *head, *projection)


def _parse_qwen2(v: Mapping[str, Any], text_hidden: int) -> Weights:
    hidden = read_count(v, "embed_dim")
    inner = hidden * read_count(v, "mlp_ratio")
    mlp = _linear("fc1", hidden, inner), _linear("fc2", inner, hidden)
    merger = _layer_norm(hidden), *_merge_patches(v, hidden, read_count(v, "hidden_size"), "0", "2")
    return (_patch_weight(v, hidden, False), *_repeat_block(v, hidden, _layer_norm(hidden), mlp), *merger)


def _parse_qwen2_5(v: Mapping[str, Any], text_hidden: int) -> Weights:
    hidden, inner = read_count(v, "hidden_size"), read_count(v, "intermediate_size")
    mlp = _linear("gate_proj", hidden, inner), _linear("up_proj", hidden, inner), _linear("down_proj", inner, hidden)
    norm = TowerWeight((hidden,))
    merger = norm, *_merge_patches(v, hidden, read_count(v, "out_hidden_size"), "0", "2")
    return (_patch_weight(v, hidden, False), *_repeat_block(v, hidden, norm, mlp), *merger)


def _parse_qwen3(v: Mapping[str, Any], text_hidden: int) -> Weights:
    hidden, inner, out = (read_count(v, name) for name in ("hidden_size", "intermediate_size", "out_hidden_size"))
    names = "linear_fc1", "linear_fc2"
    mlp = _linear(names[0], hidden, inner), _linear(names[1], inner, hidden)
    places = TowerWeight((read_count(v, "num_position_embeddings"), hidden))
    merged = _merge_patches(v, hidden, out, *names)
    deep = v.get("deepstack_visual_indexes", [8, 16, 24])
    if not isinstance(deep, (list, tuple)):
        raise ValueError("the config's deepstack_visual_indexes must be a list of the numbers of layers")
    mergers = (_layer_norm(hidden), *merged, *(_layer_norm(merged[0].shape[1]), *merged) * len(deep))
    return (_patch_weight(v, hidden, True), places, *_repeat_block(v, hidden, _layer_norm(hidden), mlp), *mergers)


def _repeat_block(v: Mapping[str, Any], hidden: int, norm: TowerWeight, mlp: Weights) -> Weights:
    block = norm, norm, _linear("qkv", hidden, 3 * hidden), _linear("proj", hidden, hidden), *mlp
    return block * _read_depth(v, "depth")


def _read_depth(v: Mapping[str, Any], name: str) -> int:
    if (depth := read_count(v, name)) > 1024:
        raise ValueError(f"the vision_config's {name} is {depth}; no model has that many")
    return depth


def _patch_weight(v: Mapping[str, Any], hidden: int, bias: bool) -> TowerWeight:
    patch, frames = read_count(v, "patch_size"), read_count(v, "temporal_patch_size")
    return TowerWeight((hidden, read_count(v, "in_channels"), frames, patch, patch), bias=bias)


def _merge_patches(v: Mapping[str, Any], hidden: int, out: int, first: str, second: str) -> Weights:
    """The two layers over a square of patches."""
    wide = hidden * read_count(v, "spatial_merge_size") ** 2
    return _linear(first, wide, wide), _linear(second, wide, out)


_TOWERS = {
    "siglip_vision_model": _parse_siglip, "qwen2_vl_vision": _parse_qwen2, "qwen2_5_vl_vision": _parse_qwen2_5,
    "qwen3_vl_vision": _parse_qwen3,
}  # fmt: skip
