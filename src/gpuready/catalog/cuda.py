"""Which driver runs which CUDA, which GPUs nvcc can target, and which compilers it accepts.

Drivers are Linux drivers. A bare branch (``580``) stands for the newest driver of that branch.
"""

from __future__ import annotations

from gpuready import versions
from gpuready.catalog import load, remembered

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def releases() -> list[str]:
    """Return every known CUDA release, oldest first."""
    return list(_rows())


@remembered
def _rows() -> dict[str, dict[str, Any]]:
    return {row["version"]: row for row in load("cuda")["cuda"]}


def release(version: str) -> dict[str, Any] | None:
    """Return the row of a release, by any of its updates: ``12.4.127`` is 12.4."""
    major, minor = versions.minor(version)
    return _rows().get(f"{major}.{minor}")


def rule(name: str) -> dict[str, Any]:
    """Return one of NVIDIA's rules: its text (``says``), figures and source."""
    return next(row for row in load("cuda")["rule"] if row["id"] == name)


def driver_floor(cuda: str) -> tuple[str | None, str]:
    """Return the oldest driver that starts programs of this CUDA, and the source; None if unknown."""
    row = release(cuda) or _newest_of(versions.major(cuda))
    return (row["driver_floor"], row["source"]["driver"]) if row else (None, "")


def _newest_of(major: int) -> dict[str, Any] | None:
    """Return the newest row of a major. By rule a minor release missing here has the floor of its major."""
    same = [row for row in _rows().values() if versions.major(row["version"]) == major]
    return same[-1] if same else None


def driver_full(cuda: str) -> tuple[str | None, str]:
    """Return the driver released with this CUDA (a bare branch if NVIDIA names no more), and the source."""
    row = release(cuda)
    return (_full(row), row["source"]["driver"]) if row else (None, "")


def _full(row: dict[str, Any]) -> str:
    return str(row.get("driver_full") or row["driver_branch"])


def driver_cuda(driver: str) -> str | None:
    """Return the newest CUDA this driver fully supports; None if the driver is older than the catalog."""
    known = [version for version, row in _rows().items() if _reaches(driver, _full(row))]
    return known[-1] if known else None


def drivers() -> list[str]:
    """Return the drivers released with a CUDA release, oldest first."""
    return [_full(row) for row in _rows().values()]


def runs(driver: str, cuda: str, compat: bool = False, datacentre: bool = True) -> bool | None:
    """Return whether programs built with this CUDA start on this driver; None if unknown.

    ``compat``: the cuda-compat libcuda of this CUDA is in use, which helps only on data-centre GPUs.
    """
    floor, _ = driver_floor(cuda)
    if floor is None:
        return None
    if _reaches(driver, floor):
        return True
    return compat and datacentre and versions.major(driver) in (compat_branches(cuda) or ())


def compat_branches(cuda: str) -> tuple[int, ...] | None:
    """Return the driver branches on which the cuda-compat package of this CUDA runs; None if unknown."""
    row = release(cuda)
    return tuple(row["forward"]) if row and "forward" in row else None


def _reaches(driver: str, wanted: str) -> bool:
    mine, floor = versions.release(driver), versions.release(wanted)
    # 580 and 580.65 stand for the newest driver with that prefix: no driver has so short a number.
    return mine == floor[: len(mine)] or versions.compare(driver, wanted) >= 0


def targets(cuda: str) -> tuple[str, ...] | None:
    """Return the compute capabilities that nvcc of this release can target; None for an unknown release."""
    row = release(cuda)
    return tuple(row["targets"]) if row else None


def gcc_range(cuda: str) -> tuple[int, int, str] | None:
    """Return the oldest and newest gcc major that nvcc of this release accepts, and the source."""
    row = release(cuda)
    return (row["gcc_min"], row["gcc_max"], row["source"]["gcc"]) if row else None


def driver_branch_max_for(capability: str) -> tuple[int | None, str]:
    """Return the last driver branch for GPUs of this capability, and the source; None if there is none."""
    return _branch(capability, "last")


def driver_branch_min_for(capability: str) -> tuple[int | None, str]:
    """Return the first driver branch for GPUs of this capability, if known, and the source."""
    return _branch(capability, "first")


def _branch(capability: str, end: str) -> tuple[int | None, str]:
    wanted = versions.minor(capability)
    for row in load("cuda")["branch"]:
        if end in row and versions.minor(row["from"]) <= wanted <= versions.minor(row["to"]):
            return row[end], row["source"]
    return None, ""
