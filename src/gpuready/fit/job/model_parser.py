"""Read a model's config.json: the shape that it describes, whatever its family."""

from collections.abc import Mapping
from typing import Any

from gpuready.fit.job.model_families import parse_family_shape
from gpuready.fit.job.model_shape import (
    CONFIG_SWITCHES,
    FAMILY_ALIASES,
    MAX_LAYERS,
    MODEL_FAMILIES,
    ModelShape,
    parse_common_shape,
)
from gpuready.fit.job.records import UnknownLayers

FORWARDING_TYPES = (
    "fast_vlm", "glm4v", "glm4v_moe", "glm_ocr", "llava", "llava_next_video", "llava_onevision", "minimax_m3_vl", "paddleocr_vl", "qwen2_5_vl",
    "qwen2_vl", "video_llama_3",
)  # fmt: skip
"""Types of transformers 5.17 that are tied also where only their language model's config says so."""


def read_tied_embeddings(config: Mapping[str, Any], inner: Mapping[str, Any]) -> Any:
    """Return whether a model with a language model inside ties its embeddings; None where no config says it.

    transformers reads the outer config. Older versions wrote it into the inner one, which counts where the outer is silent.
    """
    outer, nested = config.get("tie_word_embeddings"), inner.get("tie_word_embeddings")
    forwards = outer is False and nested is True and config.get("model_type") in FORWARDING_TYPES
    return nested if outer is None or forwards else outer


def parse_model_config(config: Mapping[str, Any]) -> ModelShape:
    """Return the shape that a config describes; FitUndecided for an unknown family, ValueError for invalid values."""
    if not hasattr(config, "get"):
        raise ValueError("a model's config must be an object with fields such as hidden_size")
    if isinstance(config.get("text_config"), dict) and "hidden_size" not in config:
        config = _flatten_text_config(config)
    family = str(config.get("model_type") or "")
    family = FAMILY_ALIASES.get(family, family)
    if not family:
        raise UnknownLayers(
            "the model's config has no model_type, so its layers are unknown (--trace takes them from the torch that is installed)"
        )
    for name in CONFIG_SWITCHES:
        if not isinstance(config.get(name), (bool, type(None))):
            raise ValueError(f"the config's {name} must be true or false, not {config[name]!r}")
    if family in MODEL_FAMILIES and family != "gpt2":
        shape = parse_common_shape(config, family)
    else:
        shape = parse_family_shape(config, family)
    for name, maximum in (("layers", MAX_LAYERS), ("vocabulary", 1 << 26), ("experts", 1 << 14), ("hidden", 1 << 22)):
        if getattr(shape, name) > maximum:
            raise ValueError(f"the config has {name} {getattr(shape, name)}; no model has more than {maximum}")
    if shape.heads % shape.kv_heads:
        raise ValueError(
            f"num_attention_heads ({shape.heads}) must be a multiple of the key/value heads ({shape.kv_heads})"
        )
    if shape.hidden % shape.heads and family in ("llama", "gpt_neox", "gpt2"):  # transformers refuses it too
        raise ValueError(f"hidden_size ({shape.hidden}) must be a multiple of the heads ({shape.heads})")
    if shape.head_size % 2 and shape.rotary == 1.0:
        raise ValueError(f"the size of a head ({shape.head_size}) must be even: its halves turn in pairs")
    return shape


def _flatten_text_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config of the language model."""
    inner = name_text_type(config, config["text_config"])
    _refuse_other_parts(config)
    tied = read_tied_embeddings(config, inner)
    return inner | ({} if tied is None else {"tie_word_embeddings": tied})


def name_text_type(config: Mapping[str, Any], inner: dict[str, Any]) -> dict[str, Any]:
    """Return a nested config with its type: transformers knows it by the outer one."""
    kind = f"{config.get('model_type')}_text"
    return {"model_type": kind, **inner} if kind in FAMILY_ALIASES or kind in MODEL_FAMILIES else inner


def _refuse_other_parts(config: Mapping[str, Any]) -> None:
    """Refuse a model of which the language model is a part: its other parts have weights that no template here counts."""
    others = [name for name, part in config.items() if name.endswith("_config") and isinstance(part, dict)]
    others = [name for name in others if name not in ("text_config", "quantization_config", "generation_config")]
    if others:
        raise UnknownLayers(
            f"the model's {others[0]} has layers that are not known here; --trace takes them from the torch that is installed"
        )
