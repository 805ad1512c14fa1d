"""Compiled packages: how each is installed, and what building it requires."""

from collections.abc import Mapping
from functools import cache, cmp_to_key
from typing import Any

from gpuready.catalog import load_catalog, packages
from gpuready.catalog.torch import TorchBuild
from gpuready.model import versions

KernelCatalogRow = dict[str, Any]


@cache
def _kernel_rows() -> dict[str, KernelCatalogRow]:
    return {row["name"]: row for row in load_catalog("kernels")["kernel"]}


def list_kernels() -> list[str]:
    return list(_kernel_rows())


def find_kernel(name: str) -> KernelCatalogRow | None:
    """Return the row of a compiled package, by any spelling of its name."""
    return _kernel_rows().get(packages.canonical_package_name(name))


def kernels_for_word(word: str) -> list[str]:
    """Return the packages requested by a word of ``--wants`` or a name: ``mamba`` -> mamba-ssm, causal-conv1d."""
    wanted = packages.canonical_package_name(word)
    return [name for name, row in _kernel_rows().items() if wanted in (name, *row["wants"])]


@cache
def list_kernel_releases(name: str) -> list[str]:
    """Return every known release, newest first."""
    known = [one["version"] for one in (packages.find_package(name) or {}).get("version", ())]
    known += [one["version"] for one in (find_kernel(name) or {}).get("version", ())]
    return sorted(dict.fromkeys(known), key=cmp_to_key(versions.compare_versions), reverse=True)


def list_prebuilt_releases(name: str) -> list[str]:
    """Return the releases of a compiled package of which the wheels are known, the oldest first."""
    return [str(row["version"]) for row in (find_kernel(name) or {}).get("version", ())]


def find_prebuilt_wheels(name: str, version: str) -> KernelCatalogRow | None:
    """Return the torch, CUDA, Python and machines that a release has wheels for; None if unknown."""
    rows = (find_kernel(name) or {}).get("version", ())
    return next((one for one in rows if one["version"] == version), None)


def find_kernel_release(name: str, version: str) -> KernelCatalogRow:
    """Return the row of a release in the package catalog, unchanged; empty if there is none."""
    return _kernel_releases_by_version(name).get(version, {})


@cache
def _kernel_releases_by_version(name: str) -> dict[str, KernelCatalogRow]:
    return {one["version"]: one for one in (packages.find_package(name) or {}).get("version", ())}


def uses_cxx11_abi(build: TorchBuild) -> bool:
    """Return whether this torch wheel uses the C++11 ABI, which everything linked to it must match."""
    row = load_catalog("kernels")["abi"][0]
    if versions.compare_versions(build.version, row["since"]) >= 0:
        return True
    if build.machine == "aarch64":
        return versions.compare_versions(build.version, row["aarch64_since"]) >= 0
    return f"{build.version}+{build.variant}" in row["builds"]


def compiled_capabilities(row: Mapping[str, Any], cuda: str) -> list[str]:
    """Return the compute capabilities that a build with this CUDA contains: ``["8.0", "9.0"]``."""
    return [
        one["cc"]
        for one in row.get("arch", ())
        if versions.compare_versions(one["cuda"], cuda) <= 0
        and ("until" not in one or versions.compare_versions(cuda, one["until"]) <= 0)
    ]
