"""Compiled packages: how each is installed, and what building it requires."""

from __future__ import annotations

from gpuready import versions
from gpuready.catalog import load, packages, remembered

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuready.catalog.torch import Build

    Row = dict[str, Any]


@remembered
def _rows() -> dict[str, Row]:
    return {row["name"]: row for row in load("kernels")["kernel"]}


def names() -> list[str]:
    return list(_rows())


def kernel(name: str) -> Row | None:
    """Return the row of a compiled package, by any spelling of its name."""
    return _rows().get(packages.canonical(name))


def asked_by(word: str) -> list[str]:
    """Return the packages requested by a word of ``--wants`` or a name: ``mamba`` -> mamba-ssm, causal-conv1d."""
    wanted = packages.canonical(word)
    return [name for name, row in _rows().items() if wanted in (name, *row["wants"])]


@remembered
def releases(name: str) -> list[str]:
    """Return every known release, newest first."""
    from functools import cmp_to_key

    found = [one["version"] for one in (packages.package(name) or {}).get("version", ())]
    found += [one["version"] for one in (kernel(name) or {}).get("version", ())]
    return sorted(dict.fromkeys(found), key=cmp_to_key(versions.compare), reverse=True)


def ready_made(name: str, version: str) -> Row | None:
    """Return the torch, CUDA, Python and machines that a release has wheels for; None if unknown."""
    rows = (kernel(name) or {}).get("version", ())
    return next((one for one in rows if one["version"] == version), None)


def release(name: str, version: str) -> Row:
    """Return the row of a release in the package catalog, unchanged; empty if there is none."""
    return _of_package(name).get(version, {})


@remembered
def _of_package(name: str) -> dict[str, Row]:
    return {one["version"]: one for one in (packages.package(name) or {}).get("version", ())}


def cxx11_abi(build: Build) -> bool:
    """Return whether this torch wheel uses the C++11 ABI, which everything linked to it must match."""
    row = load("kernels")["abi"][0]
    if versions.compare(build.version, row["since"]) >= 0:
        return True
    if build.machine == "aarch64":
        return versions.compare(build.version, row["aarch64_since"]) >= 0
    return f"{build.version}+{build.variant}" in row["builds"]


def compiled_for(row: Mapping[str, Any], cuda: str) -> list[str]:
    """Return the compute capabilities that a build with this CUDA contains: ``["8.0", "9.0"]``."""
    return [
        one["cc"]
        for one in row.get("arch", ())
        if versions.compare(one["cuda"], cuda) <= 0
        and ("until" not in one or versions.compare(cuda, one["until"]) <= 0)
    ]
