"""Accelerators of every vendor: how to detect them without torch, and which variables select among them."""

from __future__ import annotations

from gpuready.catalog import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def vendor(name: str) -> dict[str, Any] | None:
    """Return the row of a vendor, by its id."""
    return _first("accelerator", "id", name.lower())


def by_backend(backend: str) -> dict[str, Any] | None:
    """Return the vendor of a backend: ``cuda``, ``rocm``, ``xpu``, ``npu``, ``hpu``, ``mps`` …"""
    return _first("accelerator", "backend", backend.lower())


def rocm_for(gfx: str) -> list[str]:
    """Return the ROCm versions whose PyTorch wheels support this gfx target, newest first."""
    return [row["rocm"] for row in load("accelerators")["rocm_index"] if gfx in row["gfx"]]


def products(gfx: str) -> str | None:
    """Return the product names of a gfx target."""
    row = _first("gfx", "target", gfx)
    return row["products"] if row else None


def _first(table: str, key: str, value: str) -> dict[str, Any] | None:
    return next((row for row in load("accelerators")[table] if row.get(key) == value), None)
