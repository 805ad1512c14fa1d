"""Which driver runs which CUDA, what nvcc can build for, and with which compiler.

Drivers are Linux drivers. A bare branch (``580``) stands for the newest driver of that branch.
"""

from __future__ import annotations

from gpuready import versions
from gpuready.catalog import load, remembered

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


def releases() -> list[str]:
    """Every CUDA release that the catalogue knows, the oldest first."""
    return list(_rows())


@remembered
def _rows() -> dict[str, dict[str, Any]]:
    return {row["version"]: row for row in load("cuda")["cuda"]}


def release(version: str) -> dict[str, Any] | None:
    """The row of a release, by any of its updates: ``12.4.127`` is 12.4."""
    major, minor = versions.minor(version)
    return _rows().get(f"{major}.{minor}")


def rule(name: str) -> dict[str, Any]:
    """One of NVIDIA's rules: what it ``says``, its figures and its source."""
    return next(row for row in load("cuda")["rule"] if row["id"] == name)


def driver_floor(cuda: str) -> tuple[str | None, str]:
    """The oldest driver on which programs of this CUDA start, and who says so; None where nobody does."""
    row = release(cuda) or _newest_of(versions.major(cuda))
    return (row["driver_floor"], row["source"]["driver"]) if row else (None, "")


def _newest_of(major: int) -> dict[str, Any] | None:
    """A minor release that the catalogue lacks has the floor of its major: that is the rule."""
    same = [row for row in _rows().values() if versions.major(row["version"]) == major]
    return same[-1] if same else None


def driver_full(cuda: str) -> tuple[str | None, str]:
    """The driver that came out with this CUDA (a bare branch where NVIDIA names no more), and who says so."""
    row = release(cuda)
    return (_full(row), row["source"]["driver"]) if row else (None, "")


def _full(row: dict[str, Any]) -> str:
    return str(row.get("driver_full") or row["driver_branch"])


def driver_cuda(driver: str) -> str | None:
    """The newest CUDA of which this driver has everything; None where it is older than the catalogue."""
    known = [version for version, row in _rows().items() if _reaches(driver, _full(row))]
    return known[-1] if known else None


def drivers() -> list[str]:
    """The drivers that came out with a CUDA release, the oldest first."""
    return [_full(row) for row in _rows().values()]


def runs(driver: str, cuda: str, compat: bool = False, datacentre: bool = True) -> bool | None:
    """Whether programs built with this CUDA start on this driver; None where the catalogue cannot know.

    ``compat``: the cuda-compat libcuda of this CUDA is in use, which helps on a data-centre GPU alone.
    """
    floor, _ = driver_floor(cuda)
    if floor is None:
        return None
    if _reaches(driver, floor):
        return True
    return compat and datacentre and versions.major(driver) in (compat_branches(cuda) or ())


def compat_branches(cuda: str) -> tuple[int, ...] | None:
    """Driver branches on which the cuda-compat package of this CUDA runs; None where that is not known."""
    row = release(cuda)
    return tuple(row["forward"]) if row and "forward" in row else None


def _reaches(driver: str, wanted: str) -> bool:
    mine, floor = versions.release(driver), versions.release(wanted)
    # 580 and 580.65 stand for the newest driver that begins so: no driver has so short a number there.
    return mine == floor[: len(mine)] or versions.compare(driver, wanted) >= 0


def targets(cuda: str) -> tuple[str, ...] | None:
    """The compute capabilities that nvcc of this release can build for; None for a release we do not know."""
    row = release(cuda)
    return tuple(row["targets"]) if row else None


def gcc_range(cuda: str) -> tuple[int, int, str] | None:
    """The oldest and the newest major of gcc that nvcc of this release accepts, and who says so."""
    row = release(cuda)
    return (row["gcc_min"], row["gcc_max"], row["source"]["gcc"]) if row else None


def driver_branch_max_for(capability: str) -> tuple[int | None, str]:
    """The last driver branch for GPUs of this capability, and who says so; None where there is none."""
    return _branch(capability, "last")


def driver_branch_min_for(capability: str) -> tuple[int | None, str]:
    """The first driver branch for GPUs of this capability, where the catalogue has it, and who says so."""
    return _branch(capability, "first")


def _branch(capability: str, end: str) -> tuple[int | None, str]:
    wanted = versions.minor(capability)
    for row in load("cuda")["branch"]:
        if end in row and versions.minor(row["from"]) <= wanted <= versions.minor(row["to"]):
            return row[end], row["source"]
    return None, ""
