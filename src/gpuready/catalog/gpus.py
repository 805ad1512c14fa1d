"""NVIDIA GPUs by name, tolerant of how the name is written; other accelerators, features of GPUs, and Xids."""

from collections.abc import Iterable
from functools import cache
from typing import Any

from gpuready.catalog import load_catalog
from gpuready.model import versions

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


def find_accelerator_vendor(name: str) -> dict[str, Any] | None:
    """Return the row of a vendor, by its id."""
    return _find_accelerator_row("accelerator", "id", name.lower())


def find_vendor_by_backend(backend: str) -> dict[str, Any] | None:
    """Return the vendor of a backend: ``cuda``, ``rocm``, ``xpu``, ``npu``, ``hpu``, ``mps`` …"""
    return _find_accelerator_row("accelerator", "backend", backend.lower())


def find_products(names: Iterable[str]) -> list[dict[str, Any]]:
    """Return the rows of products by their names, as drivers and the catalogue write them; without those that are unknown."""
    wanted = {str(name).upper() for name in names}
    rows = load_catalog("accelerators")["product"]
    return [row for row in rows if any(row["name"].upper() in name for name in wanted)]


def _find_accelerator_row(table: str, key: str, value: str) -> dict[str, Any] | None:
    return next((row for row in load_catalog("accelerators")[table] if row.get(key) == value), None)


def find_xid(number: object) -> dict[str, Any] | None:
    """Return the row of an Xid; None for one that a program causes, or that is not known."""
    return next((row for row in load_catalog("xids")["xid"] if row["xid"] == number), None)


def list_features() -> list[str]:
    """Return the id of every feature."""
    return [row["id"] for row in load_catalog("features")["feature"]]


def find_feature(name: str) -> dict[str, Any] | None:
    """Return the feature with this id or alias: ``flash_attention_2``, ``flash-attn``."""
    return _index_features().get(_feature_key(name))


@cache
def _index_features() -> dict[str, dict[str, Any]]:
    rows = load_catalog("features")["feature"]
    return {_feature_key(name): row for row in rows for name in (row["id"], *row.get("aliases", ()))}


def _feature_key(name: str) -> str:
    return name.strip().lower().replace("-", "_")


def check_feature_support(name: str, capability: str) -> tuple[bool, str]:
    """Return whether GPUs of this capability support the feature, and the source. ValueError if unknown."""
    row = find_feature(name)
    if row is None:
        raise ValueError(f"no feature is called {name!r}; the catalogue has {', '.join(list_features())}")
    low, high = row.get("min_cc"), row.get("max_cc")
    above = low is None or versions.compare_versions(capability, low) >= 0
    below = high is None or versions.compare_versions(capability, high) <= 0
    return above and below, row["source"]
