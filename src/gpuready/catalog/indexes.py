"""Package indexes besides the default one: their addresses, and the packages that must come from them."""

from functools import cache
from typing import Any

from gpuready.catalog import load_catalog, packages

DEFAULT_INDEX = "pypi"
"""The name of the default index in a plan, whichever index uv is configured to use."""


@cache
def _index_rows() -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in load_catalog("indexes")["index"]}


def list_indexes() -> list[str]:
    return list(_index_rows())


def find_index(name: str) -> dict[str, Any]:
    """Return the row of an index; ValueError for an unknown name."""
    if name not in _index_rows():
        raise ValueError(f"the catalogue knows no index {name!r}: it has {DEFAULT_INDEX}, {', '.join(list_indexes())}")
    return _index_rows()[name]


def index_url(name: str) -> str:
    """Return the address of an index; empty for the default one, which uv configures."""
    return "" if name in ("", DEFAULT_INDEX) else str(find_index(name)["url"])


def torch_index_packages() -> tuple[str, ...]:
    """Return the packages built for each CUDA, which must come from the same index as torch."""
    return tuple(load_catalog("indexes")["family"]["names"])


def packages_with_own_index(framework: str, variant: str = "") -> dict[str, str]:
    """Map the packages of one contract that need another index to the name of that index."""
    selector = f"{framework}:{variant}" if variant else framework
    rows = [row for row in _index_rows().values() if selector in row.get("for", ())]
    return {package: str(row["name"]) for row in rows for package in row["only"]}


@cache
def source_only_packages() -> dict[str, dict[str, Any]]:
    """Map packages without wheels to their rows: the version, and what it requires."""
    return {row["name"]: row for row in load_catalog("indexes")["source_only"]}


@cache
def packages_needing_torch() -> frozenset[str]:
    """Return packages whose sources need torch to report their dependencies: no resolver can query them."""
    rows = ((name, packages.find_package(name) or {}) for name in packages.list_packages())
    built = {name for name, row in rows if row.get("kind") == "cuda-extension" and _is_sdist_only(row)}
    return frozenset(built | {row["name"] for row in load_catalog("indexes")["asks_torch"]})


def find_repository(name: str) -> dict[str, Any] | None:
    """Return the row of a package that comes from its repository alone, whatever an index has under its name."""
    wanted = packages.canonical_package_name(name)
    return next((row for row in load_catalog("indexes")["asks_torch"] if row["name"] == wanted and "git" in row), None)


def _is_sdist_only(row: dict[str, Any]) -> bool:
    known = row.get("version", ())
    return bool(known) and all(one.get("dist") == "sdist-only" for one in known)
