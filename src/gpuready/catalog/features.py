"""Features of precision, attention and communication, and which GPUs support them."""

from __future__ import annotations

from functools import cache
from typing import Any

from gpuready.catalog import load_catalog
from gpuready.model import versions


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
