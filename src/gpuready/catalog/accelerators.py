"""Accelerators of every vendor: how they are seen without torch, and which variables choose among them."""

from __future__ import annotations

from gpuready.catalog import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def vendor(name: str) -> dict[str, Any] | None:
    """What is known of a vendor, by its id."""
    return _first("accelerator", "id", name.lower())


def by_backend(backend: str) -> dict[str, Any] | None:
    """The vendor behind a backend: ``cuda``, ``rocm``, ``xpu``, ``npu``, ``hpu``, ``mps`` …"""
    return _first("accelerator", "backend", backend.lower())


def rocm_for(gfx: str) -> list[str]:
    """The ROCm versions whose PyTorch wheels take this gfx target, the newest first."""
    return [row["rocm"] for row in load("accelerators")["rocm_index"] if gfx in row["gfx"]]


def products(gfx: str) -> str | None:
    """The products behind a gfx target."""
    row = _first("gfx", "target", gfx)
    return row["products"] if row else None


def _first(table: str, key: str, value: str) -> dict[str, Any] | None:
    return next((row for row in load("accelerators")[table] if row.get(key) == value), None)
