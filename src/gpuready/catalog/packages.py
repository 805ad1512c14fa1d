"""Packages around torch: what a release requires, what its wheel links to, and known conflicts."""

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

from gpuready.catalog import load_catalog
from gpuready.model import versions
from gpuready.model.metadata import canonical_name

canonical_package_name = canonical_name


def list_packages() -> list[str]:
    return list(_package_rows())


@cache
def _package_rows() -> dict[str, dict[str, Any]]:
    return {row["name"]: row for row in load_catalog("packages")["package"]}


def find_package(name: str) -> dict[str, Any] | None:
    """Return what is known of a package in general: its kind, ABI, hardware requirements and conflicts."""
    return _package_rows().get(canonical_package_name(name))


def find_package_release(name: str, version: str) -> dict[str, Any] | None:
    """Return the row of one release; None if the catalog lacks it, which implies nothing."""
    row = find_package(name)
    matching = (
        one for one in (row or {}).get("version", ()) if versions.compare_versions(one["version"], version) == 0
    )
    return next(matching, None)


def find_releases_around(name: str, version: str) -> list[dict[str, Any]]:
    """Return the rows of the nearest older and the nearest newer release that the catalogue has; empty at its ends."""
    rows = (find_package(name) or {}).get("version", ())
    older = [row for row in rows if versions.compare_versions(row["version"], version) < 0]
    newer = [row for row in rows if versions.compare_versions(row["version"], version) > 0]
    return [older[-1], newer[0]] if older and newer else []


def linked_cuda_major(row: Mapping[str, Any]) -> int | None:
    """Return the CUDA major whose runtime the wheel of a release loads; None if unknown."""
    linked = row.get("cuda_linked")
    return int(linked[0].rpartition(".")[2]) if linked else None


def required_torch(name: str, version: str) -> str | None:
    """Return the specifier of the torch that a release works with; None if unknown."""
    row = find_package_release(name, version) or {}
    specifier = row.get("for_torch", row.get("torch"))
    return None if specifier is None else str(specifier)


def find_lookalike(name: str) -> dict[str, Any] | None:
    """Return the row of an unrelated PyPI package with a misleading name."""
    wanted = canonical_package_name(name)
    return next((row for row in load_catalog("lookalikes")["lookalike"] if row["name"] == wanted), None)


@cache
def _import_conflicts() -> list[dict[str, Any]]:
    tried = [row | {"b": other} for row in load_catalog("packages")["conflict"] for other in row["b"]]
    return [*load_catalog("wheels")["import"], *tried]


@cache
def names_in_import_conflicts() -> tuple[str, ...]:
    """Return the packages of which some releases are known not to work beside some of another."""
    rows = _import_conflicts()
    return tuple(dict.fromkeys(split_requirement(row[side])[0] for row in rows for side in ("a", "b")))


def find_import_conflicts(installed: Mapping[str, str], any_release_of: str = "") -> list[dict[str, Any]]:
    """Return the known pairs of these packages (name to version) whose import fails though their metadata allows it.

    ``any_release_of``: of this package every release counts, the oldest first.
    """

    def is_here(requirement: str) -> bool:
        return split_requirement(requirement)[0] == any_release_of or _meets_requirement(requirement, installed)

    return [row for row in _import_conflicts() if is_here(row["a"]) and is_here(row["b"])]


def bundled_cuda(name: str, version: str) -> tuple[str, ...]:
    """Return the CUDA releases for which a wheel has a library inside; empty where that was not read."""
    rows = (row for row in load_catalog("wheels")["libraries"] if _meets_requirement(row["package"], {name: version}))
    return tuple(next((row["cuda"] for row in rows), ()))


def find_own_cuda(name: str, version: str) -> dict[str, Any] | None:
    """Return the CUDA and cuDNN that a release loads by itself; None where that is not known."""
    rows = load_catalog("packages")["own_cuda"]
    return next((row for row in rows if _meets_requirement(row["packages"], {name: version})), None)


def _meets_requirement(requirement: str, have: Mapping[str, str]) -> bool:
    name, specifier = split_requirement(requirement)
    version = have.get(name)
    return version is not None and versions.satisfies_specifier(version, specifier)


UV_OPTIONS_WITH_VALUE = ("--python", "--torch-backend", "--reinstall-package", "--upgrade-package", "--index-url",
                         "--extra-index-url", "--index", "--no-binary", "--only-binary", "--no-build-isolation-package",
                         "--prerelease", "-r", "-f", "-e")  # fmt: skip


def list_positional_words(words: Sequence[str]) -> list[str]:
    """Return the requirements among the words after ``uv pip install``."""
    return [
        word
        for at, word in enumerate(words)
        if not word.startswith("-") and (at == 0 or words[at - 1] not in UV_OPTIONS_WITH_VALUE)
    ]


@lru_cache(4096)
def split_requirement(requirement: str) -> tuple[str, str]:
    """Split ``trl>=0.25`` into ``("trl", ">=0.25")``; an empty specifier accepts every version."""
    at = min((i for i, letter in enumerate(requirement) if letter in "<>=!~[(; \t"), default=len(requirement))
    name = requirement[:at]
    return canonical_package_name(name), requirement[len(name) :].strip()
