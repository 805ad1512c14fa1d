"""Releases of the frameworks: what each requires, as far as its files tell (``tools/list_releases.py``)."""

from __future__ import annotations

from functools import cache
from typing import Any

from gpuready.catalog import load_catalog
from gpuready.catalog.packages import canonical_package_name


@cache
def _rows_by_version(name: str) -> dict[str, dict[str, Any]]:
    """The row of each release of a distribution, the oldest first; rows are shared by releases that say the same."""
    rows = [row for row in load_catalog("releases")["release"] if row["name"] == name]
    return {version: row for row in rows for version in row["versions"]}


def list_releases(name: str) -> list[str]:
    """Return the releases of a distribution that are not withdrawn, the oldest first; empty where they are not listed."""
    rows = _rows_by_version(canonical_package_name(name))
    return [version for version, row in rows.items() if not row.get("withdrawn")]


def find_release(name: str, version: str) -> tuple[str, dict[str, Any]] | None:
    """Return a release and its row, a withdrawn one too; of a version that leaves parts out (``0.8``) the newest patch, else None."""
    known = _rows_by_version(canonical_package_name(name))
    public = version.partition("+")[0]
    found = [one for one in known if one == public or _without_zeros(one) == _without_zeros(public)]
    found = found or [one for one in list_releases(name) if one.startswith((f"{public}.", f"{public}.post"))]
    return (found[-1], known[found[-1]]) if found else None


def _without_zeros(version: str) -> str:
    while version.endswith(".0"):
        version = version.removesuffix(".0")
    return version
