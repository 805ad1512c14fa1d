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


def list_rocm_versions(gfx: str) -> list[str]:
    """Return the ROCm versions whose PyTorch wheels support this gfx target, newest first."""
    return [row["rocm"] for row in load_catalog("accelerators")["rocm_index"] if gfx in row["gfx"]]


def find_gfx_products(gfx: str) -> str | None:
    """Return the product names of a gfx target."""
    row = _find_accelerator_row("gfx", "target", gfx)
    return row["products"] if row else None


def _find_accelerator_row(table: str, key: str, value: str) -> dict[str, Any] | None:
    return next((row for row in load_catalog("accelerators")[table] if row.get(key) == value), None)
