"""Configs of well-known models by name, without a network; learned positions that limit a sequence."""

from collections.abc import Mapping
from difflib import get_close_matches
from functools import cache
from typing import Any

from gpuready.catalog import load_catalog
from gpuready.fit.job.model_shape import read_count

_NAME_VARIANTS = (
    "instruct",
    "chat",
    "it",
    "base",
    "pt",
    "hf",
    "meta",
    "unsloth",
    "bnb",
    "4bit",
    "8bit",
    "fp16",
    "bf16",
)
"""Words in a name that do not change a model's shape."""


def find_model_config(name: str) -> dict[str, Any] | None:
    """Return the config of a model by its name (``meta-llama/Llama-3.1-8B-Instruct``); None if unknown."""
    return _model_index().get(_model_key(name))


def list_model_names() -> list[str]:
    """Return the name of every model in the catalogue."""
    return [row["name"] for row in load_catalog("models")["model"]]


def similar_model_names(name: str) -> list[str]:
    """Return names that are spelled similarly; for a size such as ``7b``, models of that size."""
    word = name.rpartition("/")[2].lower()
    if word[:-1].replace(".", "").isdecimal() and word[-1:] in "bm":
        return [known for known in list_model_names() if word in known.split("-")][:3]
    return get_close_matches(word, list_model_names(), 3, 0.5)


@cache
def _model_index() -> dict[str, dict[str, Any]]:
    index: dict[str, dict[str, Any]] = {}
    for row in load_catalog("models")["model"]:
        for name in (row["name"], *row.get("also", ())):
            index.setdefault(_model_key(name), _restore_null_window(row["config"]))
    return index


def _restore_null_window(row: dict[str, Any]) -> dict[str, Any]:
    """TOML has no null: a window of 0 means None, which differs from an absent key."""
    return {**row, "sliding_window": None} if row.get("sliding_window") == 0 else row


def _model_key(name: str) -> str:
    words = name.rstrip("/").rpartition("/")[2].casefold().replace("_", "-").replace(":", "-").split("-")
    return "".join(c for word in words if word not in _NAME_VARIANTS for c in word if c.isalnum())


ROBERTA_FAMILIES = ("roberta", "xlm-roberta", "camembert")  # their positions start behind the padding
POSITION_DEFAULTS = {
    "gpt2": 1024, "whisper": 448, "bart": 1024, "mbart": 1024, "pegasus": 1024, "marian": 1024, "opt": 2048, "gpt_neo": 2048,
    "bert": 512, "distilbert": 512,
} | dict.fromkeys(ROBERTA_FAMILIES, 512)  # fmt: skip


def count_positions(config: Mapping[str, Any]) -> int:
    """Return how many tokens a model with learned positions takes; 0 for one without, or an unknown one."""
    family = str(config.get("model_type") or "")
    if family not in POSITION_DEFAULTS:
        return 0
    key = {"gpt2": "n_positions", "whisper": "max_target_positions"}.get(family, "max_position_embeddings")
    count = read_count(config, key, default=POSITION_DEFAULTS[family])
    return count - 2 if family in ROBERTA_FAMILIES else count
