"""Rows of ``import.damage``: their kinds, and which of them a failure of an import is about."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

FILE_KINDS = ("missing", "resized", "short", "changed", "unreadable", "damaged", "machine", "source")
"""Files that are not as they were installed: PKG043."""
LIBRARY_KINDS = ("library", "old-library", "other-torch", "python")
"""Whole extension modules that want what is not here: PKG047."""
NO_METADATA = "no-metadata"
NEED_KINDS = ("absent", "version", NO_METADATA)
"""What is required and is not there, or of another version: PKG044."""
NUMPY_KINDS = ("numpy",)
"""Extension modules that were compiled for another numpy: PKG046."""


def is_cause(row: dict[str, Any], failed: dict[str, Any]) -> bool:
    """Whether the failure of an import is about a row."""
    error, name = str(failed["error"]), str(failed.get("name") or "")
    if row["kind"] in NEED_KINDS:
        module = str(row["distribution"]).replace("-", "_")
        return name.partition(".")[0].lower() == module or f"'{module}" in error
    path = str(row["path"])
    if not path:
        return False
    parts = name.replace(".", "/")
    is_named = bool(parts) and path.endswith((f"/{parts}.py", f"/{parts}/__init__.py"))
    is_extension = bool(parts) and f"/{parts}." in path and path.endswith(".so")
    return is_named or is_extension or path == str(failed.get("file") or "") or path in error
