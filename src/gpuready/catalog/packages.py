"""Packages around torch: what a release requires, what its wheel links to, and known conflicts."""

from __future__ import annotations

from gpuready import versions
from gpuready.catalog import load, remembered

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def names() -> list[str]:
    return list(_rows())


@remembered
def _rows() -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in load("packages")["package"]}


def canonical(name: str) -> str:
    """Normalise a distribution name: ``Flash_Attn`` -> ``flash-attn``."""
    return "-".join(part for part in name.lower().replace("_", "-").replace(".", "-").split("-") if part)


def package(name: str) -> dict[str, Any] | None:
    """Return what is known of a package in general: its kind, ABI, hardware requirements and conflicts."""
    return _rows().get(canonical(name))


def release(name: str, version: str) -> dict[str, Any] | None:
    """Return the row of one release; None if the catalog lacks it, which implies nothing."""
    row = package(name)
    found = (one for one in (row or {}).get("version", ()) if versions.compare(one["version"], version) == 0)
    return next(found, None)


def cuda_linked(row: Mapping[str, Any]) -> int | None:
    """Return the CUDA major whose runtime the wheel of a release loads; None if unknown."""
    linked = row.get("cuda_linked")
    return int(linked[0].rpartition(".")[2]) if linked else None


def torch_for(name: str, version: str) -> str | None:
    """Return the specifier of the torch that a release works with; None if unknown."""
    row = release(name, version) or {}
    found = row.get("for_torch", row.get("torch"))
    return None if found is None else str(found)


def framework(name: str) -> dict[str, Any] | None:
    """Return the requirements of a framework's current release."""
    wanted = canonical(name)
    return next((row for row in load("packages")["framework"] if row["name"] == wanted), None)


def lookalike(name: str) -> dict[str, Any] | None:
    """Return the row of an unrelated PyPI package with a misleading name."""
    wanted = canonical(name)
    return next((row for row in load("lookalikes")["lookalike"] if row["name"] == wanted), None)


def conflicts(installed: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return known conflicts between these packages (name to version); a row with ``when`` is conditional."""
    have = {canonical(name): version for name, version in installed.items()}
    rows = load("packages")["conflict"]
    return [row for row in rows if _met(row["a"], have) and any(_met(other, have) for other in row["b"])]


def _met(requirement: str, have: Mapping[str, str]) -> bool:
    name, specifier = split(requirement)
    version = have.get(name)
    return version is not None and versions.satisfies(version, specifier)


def split(requirement: str) -> tuple[str, str]:
    """Split ``trl>=0.25`` into ``("trl", ">=0.25")``; an empty specifier accepts every version."""
    at = min((i for i, letter in enumerate(requirement) if letter in "<>=!~[(; \t"), default=len(requirement))
    name = requirement[:at]
    return canonical(name), requirement[len(name) :].strip()
