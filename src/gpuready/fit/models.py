"""Configs of well-known models by name, without a network."""

from __future__ import annotations

from gpuready.catalog import load, remembered

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_FORMS = (
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


def known(name: str) -> dict[str, Any] | None:
    """Return the config of a model by its name (``meta-llama/Llama-3.1-8B-Instruct``); None if unknown."""
    return _index().get(_key(name))


def names() -> list[str]:
    """Return the name of every model in the catalogue."""
    return [row["name"] for row in load("models")["model"]]


def nearest(name: str) -> list[str]:
    """Return names that are spelled similarly."""
    from difflib import get_close_matches

    return get_close_matches(name.rpartition("/")[2].lower(), names(), 3, 0.5)


@remembered
def _index() -> dict[str, dict[str, Any]]:
    index: dict[str, dict[str, Any]] = {}
    for row in load("models")["model"]:
        for name in (row["name"], *row.get("also", ())):
            index.setdefault(_key(name), _config(row["config"]))
    return index


def _config(row: dict[str, Any]) -> dict[str, Any]:
    """TOML has no null: a window of 0 means None, which differs from an absent key."""
    return {**row, "sliding_window": None} if row.get("sliding_window") == 0 else row


def _key(name: str) -> str:
    words = name.rstrip("/").rpartition("/")[2].casefold().replace("_", "-").replace(":", "-").split("-")
    return "".join(c for word in words if word not in _FORMS for c in word if c.isalnum())
