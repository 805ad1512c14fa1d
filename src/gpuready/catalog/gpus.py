"""NVIDIA GPUs by name, tolerant of how the name is written."""

from __future__ import annotations

from functools import cache
from typing import Any

from gpuready.catalog import load_catalog

BRANDS = ("nvidia", "geforce", "tesla")


def find_gpu(name: str, memory: int | None = None) -> dict[str, Any] | None:
    """Find a GPU by the name nvidia-smi prints or a common short form (``h100``, ``RTX 4090``, ``a100-80gb``).

    ``memory`` in bytes decides between cards with the same name. A MIG instance is found by its GPU.
    """
    row = _index_gpus().get(_gpu_key(name.partition(" MIG ")[0]))
    if row is None or memory is None:
        return row
    same: list[dict[str, Any]] = [one for one in load_catalog("gpus")["gpu"] if one["name"] == row["name"]]
    return min(same, key=lambda one: abs(one["vram_gib"] * 2**30 - memory))


@cache
def _index_gpus() -> dict[str, dict[str, Any]]:
    """Map every spelling to its row. Names assigned in the data take precedence over full names."""
    rows = load_catalog("gpus")["gpu"]
    index: dict[str, dict[str, Any]] = {}
    for field in ("default_for", "short", "aliases"):
        for row in rows:
            for name in row.get(field, ()):
                index.setdefault(_gpu_key(name), row)
    for row in rows:
        index.setdefault(_gpu_key(row["name"]), row)
    return index


def _gpu_key(name: str) -> str:
    """Normalise a name: ignore case, blanks, hyphens and brands."""
    key = "".join(c for c in name.casefold() if c.isalnum())
    for brand in BRANDS:
        key = key.removeprefix(brand)
    return key


def suggest_gpu_names(name: str, count: int = 3) -> list[str]:
    """Return the nearest names that ``find_gpu`` accepts, at most one for each GPU."""
    from difflib import get_close_matches

    index = _index_gpus()
    near: dict[int, str] = {}
    for key in get_close_matches(_gpu_key(name), list(index), count * 3, 0.5):
        near.setdefault(id(index[key]), key)
    return list(near.values())[:count]
