"""Package indexes besides the default one: their addresses, and what may come from them alone."""

from __future__ import annotations

from gpuready.catalog import load, remembered

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

DEFAULT = "pypi"
"""What a plan calls the default index, whichever uv is configured to take."""


@remembered
def _rows() -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in load("indexes")["index"]}


def names() -> list[str]:
    return list(_rows())


def index(name: str) -> dict[str, Any]:
    """The row of an index. ValueError where the catalogue has none of that name."""
    if name not in _rows():
        raise ValueError(f"the catalogue knows no index {name!r}: it has {DEFAULT}, {', '.join(names())}")
    return _rows()[name]


def url(name: str) -> str:
    """The address of an index; empty for the default one, whose address is uv's own affair."""
    return "" if name in ("", DEFAULT) else str(index(name)["url"])


def family() -> tuple[str, ...]:
    """What is built once for every CUDA, and so must come from the index of its torch."""
    return tuple(load("indexes")["family"]["names"])


def apart(framework: str, variant: str = "") -> dict[str, str]:
    """Packages of one contract that come from an index of their own: name -> the name of that index."""
    asked = f"{framework}:{variant}" if variant else framework
    rows = [row for row in _rows().values() if asked in row.get("for", ())]
    return {package: str(row["name"]) for row in rows for package in row["only"]}


@remembered
def asking_torch() -> frozenset[str]:
    """Packages whose sources cannot say what they need before torch is there: no resolver can ask them."""
    from gpuready.catalog import packages

    rows = ((name, packages.package(name) or {}) for name in packages.names())
    built = {name for name, row in rows if row.get("kind") == "cuda-extension" and _source_alone(row)}
    return frozenset(built | {row["name"] for row in load("indexes")["asks_torch"]})


def _source_alone(row: dict[str, Any]) -> bool:
    known = row.get("version", ())
    return bool(known) and all(one.get("dist") == "sdist-only" for one in known)
