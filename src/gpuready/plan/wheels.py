"""Ready-made wheels: what they must fit, their names, and why one does not fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gpuready.catalog import kernels as catalogue
from gpuready.catalog import packages, torch
from gpuready.catalog.torch import TorchBuild
from gpuready.model import Facts, Record, versions
from gpuready.plan import source_build

WheelRow = Mapping[str, Any]


class WheelTarget(Record):
    """What a wheel has to fit."""

    facts: Facts
    build: TorchBuild
    python: str  # 3.12
    abi: str  # TRUE or FALSE
    ready_only: bool = False  # a newer release can be compiled: only a wheel would be better

    @property
    def torch_minor(self) -> str:
        major, minor = versions.major_minor(self.build.version)
        return f"{major}.{minor}"

    @property
    def cuda_major(self) -> str:
        return str(versions.major_version(self.build.cuda))


def why_no_wheel_fits(row: WheelRow, wheel_row: WheelRow | None, target: WheelTarget) -> str:
    """Return why no wheel of a release fits; empty if one does."""
    if wheel_row is None:
        return "for which torch its wheels are made is not known"
    wanted_values = {
        "torch": target.torch_minor,
        "cuda": target.cuda_major,
        "python": target.python,
        "machine": target.build.machine,
        "abi": target.abi,
    }
    words = {"torch": "torch ", "cuda": "CUDA ", "python": "Python ", "machine": "", "abi": "the C++11 ABI "}
    for key, value in wanted_values.items():
        if value not in wheel_row[key]:
            return f"no wheel is made for {words[key]}{value}"
    if any(all(wanted_values[key] == value for key, value in gap.items()) for gap in wheel_row.get("without", ())):
        return f"no wheel is made for torch {target.torch_minor}, CUDA {target.cuda_major} and Python {target.python} together"
    made_for = catalogue.compiled_capabilities(
        wheel_row if "arch" in wheel_row else row, wheel_row["built"][target.cuda_major]
    )
    too_old = why_glibc_too_old(prebuilt_wheel_name(row, wheel_row, wheel_row["version"], target), target)
    return too_old or why_code_missing(
        made_for, target, f"its wheel is built with CUDA {wheel_row['built'][target.cuda_major]}"
    )


def why_code_missing(code: Sequence[str], target: WheelTarget, where: str) -> str:
    """Name a GPU here for which a wheel has no code; empty if there is none."""
    if not code:
        return ""
    for capability in source_build.list_gpu_capabilities(target.facts):
        if not torch.covers_capability(code, capability, target.build.cuda)[0]:
            return f"{where} and has no code for compute capability {capability}"
    return ""


def prebuilt_wheel_name(row: WheelRow, wheel_row: WheelRow, version: str, target: WheelTarget) -> str:
    """Return the name of a release's wheel; a release whose wheels are called otherwise says so itself."""
    pattern = str(wheel_row.get("wheel", row.get("wheel", "")))
    return format_wheel_name(pattern, version, target, wheel_row["cuda"][target.cuda_major])


def format_wheel_name(pattern: str, version: str, target: WheelTarget, cuda: str) -> str:
    return pattern.format(
        version=version,
        cuda=cuda,
        torch=target.torch_minor,
        build=f"{target.build.version}+{target.build.variant}",
        abi=target.abi,
        python=target.python.replace(".", ""),
        machine=target.build.machine,
    )


def why_cuda_differs(release: WheelRow, target: WheelTarget) -> str:
    """Return why a wheel's CUDA differs from torch's; empty if it does not, or it is unknown."""
    libraries = release.get("cuda_libs", ())
    if libraries and not any(versions.major_version(one) == int(target.cuda_major) for one in libraries):
        return f"its wheel has no library for CUDA {target.cuda_major}"
    linked = packages.linked_cuda_major(release)
    if linked is not None and str(linked) != target.cuda_major:
        return f"the wheel of the index is linked to CUDA {linked}, and this torch to {target.cuda_major}"
    return ""


def list_wheel_archs(release: WheelRow, target: WheelTarget) -> list[str]:
    """List the architectures in the wheel, if recorded, for the library that torch's CUDA selects."""
    for one in release.get("archs_by_cuda", ()):
        if versions.satisfies_specifier(_bnb_cuda_library(release, target), one["cuda"]):
            return list(one["archs"])
    return [str(a) for a in release.get("archs", ())]


def _bnb_cuda_library(release: WheelRow, target: WheelTarget) -> str:
    """Return the library that bitsandbytes loads: the same CUDA, else the next lower, else the next higher."""
    same = [c for c in release["cuda_libs"] if versions.major_version(c) == int(target.cuda_major)]
    lower = [c for c in same if versions.compare_versions(c, target.build.cuda) <= 0]
    return str(lower[-1] if lower else same[0]) if same else target.build.cuda


def index_wheel_name(release: WheelRow, target: WheelTarget) -> str:
    """Return the wheel's name, if the catalogue has one for any Python or for this one."""
    seen = str(release.get("source", "")).rpartition(" ")[2]
    if not seen.endswith(".whl") or target.build.machine not in seen:
        return ""
    tag = seen.split("-")[2]
    mine = f"cp{target.python.replace('.', '')}"
    return seen if tag.startswith("py") or "abi3" in seen or tag == mine else ""


def why_glibc_too_old(wheel: str, target: WheelTarget) -> str:
    """Return why a wheel's glibc is too new for this machine; empty if it is not."""
    here = target.facts.value_if_known("os.glibc")
    mark = wheel.rpartition("manylinux_")[2].split("_")
    if here is None or "manylinux_" not in wheel or len(mark) < 2:
        return ""
    floor = f"{mark[0]}.{mark[1]}"
    return f"its wheel wants glibc {floor}, and this is {here}" if versions.compare_versions(here, floor) < 0 else ""
