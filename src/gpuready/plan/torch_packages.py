"""Packages that depend on torch: which releases fit a build, and which builds they rule out."""

from collections.abc import Iterator
from functools import cache
from typing import Any

from gpuready.catalog import indexes
from gpuready.catalog import packages as catalogue
from gpuready.catalog import torch as torches
from gpuready.catalog.torch import TorchBuild
from gpuready.contracts.catalogued_release import find_wheel_cuda, list_covered_releases
from gpuready.contracts.want import may_meet_want
from gpuready.model import Contract, Requirement, versions
from gpuready.plan.platform import CHOSEN_FACTS, Limit, PlanPlatform, limit_axes

COMPILED = ("cuda-extension", "cuda-library", "jit-extension")
WORKS_WITHOUT_KERNELS = ("torchao",)
"""Packages that work with any torch, without their kernels if these do not fit."""


def package_limits(platform: PlanPlatform, contract: Contract) -> Iterator[Limit]:
    """Yield what the contract's required packages demand of torch, its CUDA and Python."""
    for package, needs in _required_packages(contract).items():
        # The catalogue lists few releases of pure-Python packages, so only exact pins can be checked.
        pinned = any(need.want.startswith("==") for need in needs)
        if pinned or (catalogue.find_package(package) or {}).get("kind") in COMPILED:
            yield _torch_limit(platform, contract, package, needs)
        if pinned:
            yield _python_limit(platform, package, needs)
    if not platform.cpu:
        yield from _own_wheel_limits(contract)
        yield from _separate_index_limits(contract)


def _required_packages(contract: Contract) -> dict[str, list[Requirement]]:
    """Return the required needs by package, for packages whose torch the catalogue knows."""
    needs_by_package: dict[str, list[Requirement]] = {}
    for need in contract.requirements_for("package.*"):
        name = need.key.removeprefix("package.")
        tied = need.key not in CHOSEN_FACTS and name not in WORKS_WITHOUT_KERNELS and catalogue.find_package(name)
        if need.level == "required" and tied:
            needs_by_package.setdefault(name, []).append(need)
    return needs_by_package


def matching_releases(
    platform: PlanPlatform, package: str, needs: list[Requirement], build: TorchBuild, python: str
) -> list[dict[str, Any]] | None:
    """List the catalogued releases that the active needs accept; None if no need is active."""
    wants = tuple(need.want for need in needs if platform.condition_holds(need.when, build, python))
    return _releases_in_range(package, wants) if wants else None


@cache
def _releases_in_range(package: str, wants: tuple[str, ...]) -> list[dict[str, Any]]:
    rows = (catalogue.find_package(package) or {}).get("version", ())
    return [row for row in rows if all(w == "*" or versions.satisfies_specifier(row["version"], w) for w in wants)]


def releases_for_torch(rows: list[dict[str, Any]], build: TorchBuild) -> list[dict[str, Any]]:
    """Keep the releases that are made for this torch, or do not say."""
    pins = [(row, row.get("for_torch", row.get("torch")) or "") for row in rows]
    return [row for row, pin in pins if not pin or _is_inside_pin(build.version, pin)]


@cache
def _is_inside_pin(version: str, pin: str) -> bool:
    return versions.satisfies_specifier(version, pin)


def _torch_limit(platform: PlanPlatform, contract: Contract, package: str, needs: list[Requirement]) -> Limit:
    def fails(build: TorchBuild, python: str) -> str:
        rows = matching_releases(platform, package, needs, build, python)
        if not rows or releases_for_torch(rows, build):
            return ""
        newest = rows[-1]
        pin = newest.get("for_torch", newest.get("torch"))
        return f"{package} {newest['version']} is made for torch {pin}"

    wants = " and ".join(dict.fromkeys(need.want for need in needs))
    says = f"{contract.name} asks for {package} {wants}, whose releases take certain torches"
    by = "both" if any("python" in need.when for need in needs) else "torch"
    return Limit(f"torch for {package}", says, fails, (), tuple(needs), _package_source_cite(package), by)


def _python_limit(platform: PlanPlatform, package: str, needs: list[Requirement]) -> Limit:
    def fails(build: TorchBuild, python: str) -> str:
        rows = matching_releases(platform, package, needs, build, python) or []
        asks = [row.get("requires_python") or "" for row in rows]
        if not asks or any(not ask or versions.satisfies_specifier(python, ask) for ask in asks):
            return ""
        return f"{package} {rows[-1]['version']} takes Python {asks[-1]}"

    by = limit_axes("python.version", *(need.when for need in needs))
    says = f"{package} takes certain Pythons"
    return Limit(f"python of {package}", says, fails, (), tuple(needs), _package_source_cite(package), by)


def _own_wheel_limits(contract: Contract) -> Iterator[Limit]:
    """Limit torch to the CUDA major of the framework's own compiled wheel."""
    name = contract.distribution or contract.framework
    major = find_wheel_cuda(contract)
    if major is None:
        return
    around = " and ".join(f"{name} {row['version']}" for row in list_covered_releases(contract)[-2:])
    says = f"the wheel of {around} loads the runtime of CUDA {major}"

    def fails(build: TorchBuild, python: str) -> str:
        return "" if versions.major_version(build.cuda) == major else says

    need = Requirement("torch.cuda", f">={major},<{major + 1}", cite=_package_source_cite(name))
    yield Limit(f"cuda of {name}", says, fails, (), (need,))


def _separate_index_limits(contract: Contract) -> Iterator[Limit]:
    """Limit torch to the CUDA of an index that one package comes from."""
    for package, index in indexes.packages_with_own_index(contract.framework, contract.variant).items():
        _, variant = torches.parse_torch_version(f"0+{index.rpartition('-')[2]}")
        if not variant or not variant[2:].isdigit():
            continue
        major = int(variant[2:-1])
        says = f"{package} of the index {index} is built for CUDA {major}"

        def fails(build: TorchBuild, python: str, major: int = major, says: str = says) -> str:
            return "" if versions.major_version(build.cuda) == major else says

        need = Requirement(
            "torch.cuda", f">={major},<{major + 1}", cite=str(indexes.find_index(index).get("source", index))
        )
        yield Limit(f"cuda of {package}", says, fails, (), (need,))


def has_cuda_wheel(contract: Contract) -> bool:
    """Whether the framework's own wheels are compiled for CUDA."""
    rows = list_covered_releases(contract)
    kind = (catalogue.find_package(contract.distribution or contract.framework) or {}).get("kind")
    return kind == "cuda-extension" and any(catalogue.linked_cuda_major(row) is not None for row in rows)


def packages_of_other_cuda(
    platform: PlanPlatform, contract: Contract, build: TorchBuild, python: str
) -> dict[str, int]:
    """Return required packages whose fitting wheels all need another CUDA major, with that major."""
    other_cuda = {}
    elsewhere = indexes.packages_with_own_index(contract.framework, contract.variant)
    for package, needs in _required_packages(contract).items() if build.cuda else ():
        if package in elsewhere:  # its wheels come from an index of its own, not the catalogued one
            continue
        rows = releases_for_torch(matching_releases(platform, package, needs, build, python) or [], build)
        majors = {catalogue.linked_cuda_major(row) for row in rows}
        other = [major for major in majors if major is not None]
        if rows and None not in majors and versions.major_version(build.cuda) not in majors:
            other_cuda[package] = max(other)
    return other_cuda


def list_misfits(platform: PlanPlatform, contract: Contract, build: TorchBuild, python: str) -> dict[str, str]:
    """Return what does not fit this build but may be installed with it: wheels of another CUDA, unmet advice."""
    misfits = {
        name: f"CUDA {major}" for name, major in packages_of_other_cuda(platform, contract, build, python).items()
    }
    for need in contract.needs:
        if need.level != "recommended" or need.key not in CHOSEN_FACTS or need.want == "*":
            continue
        value = platform.fact_value(need.key, build, python)
        advised = need.key != "python.version" and platform.condition_holds(need.when, build, python)
        if advised and value is not platform.NOT_KNOWN and not may_meet_want(need.want, value):
            misfits[need.key] = need.want
    return misfits


def exact_pins(contract: Contract) -> dict[str, tuple[str, str]]:
    """Return the packages that a contract pins to one version, with the condition: ``trl`` -> ``1.8.0``."""
    pins: dict[str, tuple[str, str]] = {}
    for need in contract.requirements_for("package.*"):
        version = need.want.removeprefix("==")
        if need.level == "required" and need.want.startswith("==") and versions.is_version(version):
            pins.setdefault(need.key.removeprefix("package."), (version, need.when))
    return pins


def wanted_kernels(platform: PlanPlatform, contract: Contract) -> list[str]:
    """Return the job's wants, plus the framework itself if it is compiled."""
    job = [str(word) for word in platform.facts.value_if_known("job.wants") or ()]
    own = contract.distribution or contract.framework
    compiled = (catalogue.find_package(own) or {}).get("kind") in COMPILED
    return [*job, *([own] if compiled or own == "colossalai" else [])]


def _package_source_cite(package: str) -> str:
    source = (catalogue.find_package(package) or {}).get("source", "")
    return str(source[0] if isinstance(source, (list, tuple)) and source else source)
