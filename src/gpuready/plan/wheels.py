"""Ready-made wheels: what they must fit, their names, and why one does not fit."""

from __future__ import annotations

from gpuready import versions
from gpuready.catalog import kernels as catalogue
from gpuready.catalog import packages, torch
from gpuready.model import Noun
from gpuready.plan import building

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from gpuready.catalog.torch import Build
    from gpuready.model import Facts

    Row = Mapping[str, Any]


class Target(Noun):
    """What a wheel has to fit."""

    facts: Facts
    build: Build
    python: str  # 3.12
    abi: str  # TRUE or FALSE
    ready_only: bool = False  # a newer release can be compiled: only a wheel would be better

    @property
    def minor(self) -> str:
        major, minor = versions.minor(self.build.version)
        return f"{major}.{minor}"

    @property
    def cuda_major(self) -> str:
        return str(versions.major(self.build.cuda))


def lacking(row: Row, made: Row | None, on: Target) -> str:
    """Return why no wheel of a release fits; empty if one does."""
    if made is None:
        return "for which torch its wheels are made is not known"
    mine = {
        "torch": on.minor,
        "cuda": on.cuda_major,
        "python": on.python,
        "machine": on.build.machine,
        "abi": on.abi,
    }
    words = {"torch": "torch ", "cuda": "CUDA ", "python": "Python ", "machine": "", "abi": "the C++11 ABI "}
    for key, value in mine.items():
        if value not in made[key]:
            return f"no wheel is made for {words[key]}{value}"
    if any(all(mine[key] == value for key, value in gap.items()) for gap in made.get("without", ())):
        return f"no wheel is made for torch {on.minor}, CUDA {on.cuda_major} and Python {on.python} together"
    made_for = catalogue.compiled_for(made if "arch" in made else row, made["built"][on.cuda_major])
    return not_in(made_for, on, f"its wheel is built with CUDA {made['built'][on.cuda_major]}")


def not_in(code: Sequence[str], on: Target, where: str) -> str:
    """Name a GPU here for which a wheel has no code; empty if there is none."""
    if not code:
        return ""
    for capability in building.capabilities(on.facts):
        if not torch.covers(code, capability, on.build.cuda)[0]:
            return f"{where} and has no code for compute capability {capability}"
    return ""


def named(pattern: str, version: str, on: Target, cuda: str) -> str:
    return pattern.format(
        version=version,
        cuda=cuda,
        torch=on.minor,
        build=f"{on.build.version}+{on.build.variant}",
        abi=on.abi,
        python=on.python.replace(".", ""),
        machine=on.build.machine,
    )


def unlinked(release: Row, on: Target) -> str:
    """Return why a wheel's CUDA differs from torch's; empty if it does not, or it is unknown."""
    libraries = release.get("cuda_libs", ())
    if libraries and not any(versions.major(one) == int(on.cuda_major) for one in libraries):
        return f"its wheel has no library for CUDA {on.cuda_major}"
    linked = packages.cuda_linked(release)
    if linked is not None and str(linked) != on.cuda_major:
        return f"the wheel of the index is linked to CUDA {linked}, and this torch to {on.cuda_major}"
    return ""


def code(release: Row, on: Target) -> list[str]:
    """List the architectures in the wheel, if recorded, for the library that torch's CUDA selects."""
    for one in release.get("archs_by_cuda", ()):
        if versions.satisfies(_library(release, on), one["cuda"]):
            return list(one["archs"])
    return [str(a) for a in release.get("archs", ())]


def _library(release: Row, on: Target) -> str:
    """Return the library that bitsandbytes loads: the same CUDA, else the next lower, else the next higher."""
    same = [c for c in release["cuda_libs"] if versions.major(c) == int(on.cuda_major)]
    lower = [c for c in same if versions.compare(c, on.build.cuda) <= 0]
    return str(lower[-1] if lower else same[0]) if same else on.build.cuda


def index_wheel(release: Row, on: Target) -> str:
    """Return the wheel's name, if the catalogue has one for any Python or for this one."""
    seen = str(release.get("source", "")).rpartition(" ")[2]
    if not seen.endswith(".whl") or on.build.machine not in seen:
        return ""
    tag = seen.split("-")[2]
    mine = f"cp{on.python.replace('.', '')}"
    return seen if tag.startswith("py") or "abi3" in seen or tag == mine else ""


def too_old(wheel: str, on: Target) -> str:
    """Return why a wheel's glibc is too new for this machine; empty if it is not."""
    here = on.facts.known("os.glibc")
    mark = wheel.rpartition("manylinux_")[2].split("_")
    if here is None or "manylinux_" not in wheel or len(mark) < 2:
        return ""
    floor = f"{mark[0]}.{mark[1]}"
    return f"its wheel wants glibc {floor}, and this is {here}" if versions.compare(here, floor) < 0 else ""
