"""Rows of ``import.damage``: their kinds, and which of them a failure of an import is about."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FILE_KINDS = ("missing", "resized", "short", "changed", "unreadable", "library", "python", "source")
NEED_KINDS = ("absent", "version")
METADATA_GONE = "its metadata is missing"
"""What is said of an absent distribution whose modules are there."""
NUMPY_KINDS = ("numpy",)
"""Extension modules that were compiled for another numpy: PKG046."""


def absent_module(row: dict[str, Any]) -> str:
    """``uvicorn`` of "it imports uvicorn: not installed"."""
    return str(row["detail"]).partition(" imports ")[2].partition(":")[0]


def is_cause(row: dict[str, Any], failed: dict[str, Any]) -> bool:
    """Whether the failure of an import is about a row."""
    cause, error = str(failed.get("cause") or ""), str(failed["error"])
    if row["kind"] in NEED_KINDS:
        name = str(row["distribution"])
        return cause.partition(".")[0].replace("_", "-").lower() == name or f"'{name.replace('-', '_')}" in error
    if row["kind"] == "start":
        return f"{absent_module(row)!r}" in error
    return bool(row["path"]) and (row["path"] == cause or str(row["path"]) in error)
