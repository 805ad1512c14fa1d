"""Which driver runs which CUDA, which GPUs nvcc can target, and which compilers it accepts.

Drivers are Linux drivers, where no system is named. A bare branch (``580``) stands for the newest driver of that branch.
"""

from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

from gpuready.catalog import load_catalog
from gpuready.catalog.gpus import find_gpu
from gpuready.model import versions


def list_cuda_releases() -> list[str]:
    """Return every known CUDA release, oldest first."""
    return list(_cuda_rows())


@cache
def _cuda_rows() -> dict[str, dict[str, Any]]:
    return {row["version"]: row for row in load_catalog("cuda")["cuda"]}


def find_cuda_release(version: str) -> dict[str, Any] | None:
    """Return the row of a release, by any of its updates: ``12.4.127`` is 12.4."""
    major, minor = versions.major_minor(version)
    return _cuda_rows().get(f"{major}.{minor}")


def find_cuda_rule(name: str) -> dict[str, Any]:
    """Return one of NVIDIA's rules: its text (``says``), figures and source."""
    return next(row for row in load_catalog("cuda")["rule"] if row["id"] == name)


def needs_open_modules(capability: str, name: str) -> bool:
    """Return whether a GPU works with the open kernel modules only."""
    floor = find_cuda_rule("open_kernel_modules")["open_only_from"]
    return "GH200" in name or versions.major_minor(capability) >= versions.major_minor(floor)


def minimum_driver(cuda: str, system: object = "linux") -> tuple[str | None, str]:
    """Return the oldest driver that starts programs of this CUDA on a system, and the source; None if unknown."""
    row = find_cuda_release(cuda) or _newest_of_major(versions.major_version(cuda))
    if row is None:
        return None, ""
    floor = row["driver_floor"]
    if system == "windows":  # no floor of its own: that of the branch, whose numbers differ by system
        floor = row.get("windows_floor") or str(versions.major_version(floor))
    return floor, row["source"]["driver"]


def _newest_of_major(major: int) -> dict[str, Any] | None:
    """Return the newest row of a major. By rule a minor release missing here has the floor of its major."""
    same = [row for row in _cuda_rows().values() if versions.major_version(row["version"]) == major]
    return same[-1] if same else None


def release_driver(cuda: str) -> tuple[str | None, str]:
    """Return the driver released with this CUDA (a bare branch if NVIDIA names no more), and the source."""
    row = find_cuda_release(cuda)
    return (_row_driver(row), row["source"]["driver"]) if row else (None, "")


def _row_driver(row: dict[str, Any]) -> str:
    return str(row.get("driver_full") or row["driver_branch"])


def newest_cuda_for_driver(driver: str) -> str | None:
    """Return the newest CUDA this driver fully supports; None if the driver is older than the catalog."""
    known = [version for version, row in _cuda_rows().items() if _driver_reaches(driver, _row_driver(row))]
    return known[-1] if known else None


def list_release_drivers() -> list[str]:
    """Return the drivers released with a CUDA release, oldest first."""
    return [_row_driver(row) for row in _cuda_rows().values()]


@lru_cache(1024)  # of the same driver, for each build of torch
def driver_runs_cuda(
    driver: str, cuda: str, compat: bool = False, datacentre: bool = True, system: object = "linux"
) -> bool | None:
    """Return whether programs built with this CUDA start on this driver; None if unknown.

    ``compat``: the cuda-compat libcuda of this CUDA is in use, which helps only on data-centre GPUs.
    """
    floor, _ = minimum_driver(cuda, system)
    if floor is None:
        return None
    if _driver_reaches(driver, floor):
        return True
    return compat and datacentre and versions.major_version(driver) in (compat_branches(cuda) or ())


def compat_branches(cuda: str) -> tuple[int, ...] | None:
    """Return the driver branches on which the cuda-compat package of this CUDA runs; None if unknown."""
    row = find_cuda_release(cuda)
    return tuple(row["forward"]) if row and "forward" in row else None


def compat_package(cuda: str, driver: str, names: Sequence[str]) -> str:
    """Return the package with which this CUDA starts on an older driver of data-centre GPUs; empty where none does."""
    markets = {(find_gpu(name) or {}).get("market") for name in names}
    is_needed = driver_runs_cuda(driver, cuda) is False and driver_runs_cuda(driver, cuda, compat=True)
    return f"cuda-compat-{cuda.replace('.', '-')}" if is_needed and markets == {"datacenter"} else ""


def _driver_reaches(driver: str, floor_text: str) -> bool:
    version, floor = versions.parse_release(driver), versions.parse_release(floor_text)
    # 580 and 580.65 stand for the newest driver with that prefix: no driver has so short a number.
    return version == floor[: len(version)] or versions.compare_versions(driver, floor_text) >= 0


def list_nvcc_targets(cuda: str) -> tuple[str, ...] | None:
    """Return the compute capabilities that nvcc of this release can target; None for an unknown release."""
    row = find_cuda_release(cuda)
    return tuple(row["targets"]) if row else None


def judge_missing_target(capability: str, cuda: str) -> str:
    """``dropped`` or ``new``: why nvcc of a release, or of any where none is given, lacks a capability; empty where nobody can tell."""
    wanted, newest = versions.major_minor(capability), list_cuda_releases()[-1]
    targets = list(map(versions.major_minor, list_nvcc_targets(cuda or newest) or ()))
    if not targets or (wanted in targets) == bool(cuda):
        return ""
    return "dropped" if wanted < min(targets) else "new"


def supported_gcc_range(cuda: str) -> tuple[int, int, str] | None:
    """Return the oldest and newest gcc major that nvcc of this release accepts, and the source."""
    row = find_cuda_release(cuda)
    return (row["gcc_min"], row["gcc_max"], row["source"]["gcc"]) if row else None


def last_driver_branch(capability: str) -> tuple[int | None, str]:
    """Return the last driver branch for GPUs of this capability, and the source; None if there is none."""
    return _find_driver_branch(capability, "last")


def first_driver_branch(capability: str, system: object = "linux") -> tuple[int | None, str]:
    """Return the first driver branch for GPUs of this capability on a system, if known, and the source."""
    return _find_driver_branch(capability, "first_windows" if system == "windows" else "first")


def _find_driver_branch(capability: str, end: str) -> tuple[int | None, str]:
    wanted = versions.major_minor(capability)
    for row in load_catalog("cuda")["branch"]:
        if end in row and versions.major_minor(row["from"]) <= wanted <= versions.major_minor(row["to"]):
            return row[end], row["source"]
    return None, ""
