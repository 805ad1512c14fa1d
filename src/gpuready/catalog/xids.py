"""Xids that speak of hardware, with the action that NVIDIA names for each."""

from __future__ import annotations

from typing import Any

from gpuready.catalog import load_catalog


def find_xid(number: object) -> dict[str, Any] | None:
    """Return the row of an Xid; None for one that a program causes, or that is not known."""
    return next((row for row in load_catalog("xids")["xid"] if row["xid"] == number), None)
