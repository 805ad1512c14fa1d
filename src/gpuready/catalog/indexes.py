"""Package indexes besides the default one: their addresses, and the packages that must come from them."""

from __future__ import annotations

from gpuready.catalog import load, remembered

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEFAULT = "pypi"
"""The name of the default index in a plan, whichever index uv is configured to use."""


@remembered
def _rows() -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in load("indexes")["index"]}


def names() -> list[str]:
    return list(_rows())


def index(name: str) -> dict[str, Any]:
    """Return the row of an index; ValueError for an unknown name."""
    if name not in _rows():
        raise ValueError(f"the catalogue knows no index {name!r}: it has {DEFAULT}, {', '.join(names())}")
    return _rows()[name]


def url(name: str) -> str:
    """Return the address of an index; empty for the default one, which uv configures."""
    return "" if name in ("", DEFAULT) else str(index(name)["url"])


def family() -> tuple[str, ...]:
    """Return the packages built for each CUDA, which must come from the same index as torch."""
    return tuple(load("indexes")["family"]["names"])


def apart(framework: str, variant: str = "") -> dict[str, str]:
    """Map the packages of one contract that need another index to the name of that index."""
    asked = f"{framework}:{variant}" if variant else framework
    rows = [row for row in _rows().values() if asked in row.get("for", ())]
    return {package: str(row["name"]) for row in rows for package in row["only"]}


@remembered
def asking_torch() -> frozenset[str]:
    """Return packages whose sources need torch to report their dependencies: no resolver can query them."""
    from gpuready.catalog import packages

    rows = ((name, packages.package(name) or {}) for name in packages.names())
    built = {name for name, row in rows if row.get("kind") == "cuda-extension" and _source_alone(row)}
    return frozenset(built | {row["name"] for row in load("indexes")["asks_torch"]})


def _source_alone(row: dict[str, Any]) -> bool:
    known = row.get("version", ())
    return bool(known) and all(one.get("dist") == "sdist-only" for one in known)
