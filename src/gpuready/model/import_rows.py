"""Rows of ``import.damage``: their kinds, and which of them a failure of an import is about."""

from __future__ import annotations

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
    error, name, file = (str(failed.get(key) or "") for key in ("error", "name", "file"))
    if row["kind"] in NEED_KINDS:
        module = str(row["distribution"]).replace("-", "_")
        is_raised_there = row["kind"] == "version" and _package_of(file) == str(row["by"]).replace("-", "_")
        return name.partition(".")[0].lower() == module or f"'{module}" in error or is_raised_there
    path, parts = str(row["path"]), name.replace(".", "/")
    if row["kind"] in NUMPY_KINDS and _package_of(path) in map(_package_of, failed.get("chain") or ()):
        return True
    is_named = bool(parts) and path.endswith((f"/{parts}.py", f"/{parts}/__init__.py"))
    is_extension = bool(parts) and f"/{parts}." in path and path.endswith(".so")
    return bool(path) and (is_named or is_extension or path == file or path in error)


def _package_of(path: str) -> str:
    """``numpy`` of /venv/lib/python3.12/site-packages/numpy/dtypes.py."""
    return path.partition("-packages/")[2].partition("/")[0]
