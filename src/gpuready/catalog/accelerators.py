"""Accelerators of every vendor: how to detect them without torch, and which variables select among them."""

from __future__ import annotations

from gpuready.catalog import load_catalog

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def find_accelerator_vendor(name: str) -> dict[str, Any] | None:
    """Return the row of a vendor, by its id."""
    return _find_accelerator_row("accelerator", "id", name.lower())


def find_vendor_by_backend(backend: str) -> dict[str, Any] | None:
    """Return the vendor of a backend: ``cuda``, ``rocm``, ``xpu``, ``npu``, ``hpu``, ``mps`` …"""
    return _find_accelerator_row("accelerator", "backend", backend.lower())


def _find_accelerator_row(table: str, key: str, value: str) -> dict[str, Any] | None:
    return next((row for row in load_catalog("accelerators")[table] if row.get(key) == value), None)
