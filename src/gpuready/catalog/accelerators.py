"""Accelerators of every vendor: how to detect them without torch, and which variables select among them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpuready.catalog import load_catalog


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
