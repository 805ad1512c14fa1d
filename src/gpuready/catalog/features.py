"""Features of precision, attention and communication, and which GPUs support them."""

from __future__ import annotations

from gpuready import versions
from gpuready.catalog import load, remembered

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def names() -> list[str]:
    """Return the id of every feature."""
    return [row["id"] for row in load("features")["feature"]]


def feature(name: str) -> dict[str, Any] | None:
    """Return the feature with this id or alias: ``flash_attention_2``, ``flash-attn``."""
    return _index().get(_key(name))


@remembered
def _index() -> dict[str, dict[str, Any]]:
    rows = load("features")["feature"]
    return {_key(name): row for row in rows for name in (row["id"], *row.get("aliases", ()))}


def _key(name: str) -> str:
    return name.strip().lower().replace("-", "_")


def gate(name: str, capability: str) -> tuple[bool, str]:
    """Return whether GPUs of this capability support the feature, and the source. ValueError if unknown."""
    row = feature(name)
    if row is None:
        raise ValueError(f"no feature is called {name!r}; the catalogue has {', '.join(names())}")
    low, high = row.get("min_cc"), row.get("max_cc")
    above = low is None or versions.compare(capability, low) >= 0
    below = high is None or versions.compare(capability, high) <= 0
    return above and below, row["source"]
