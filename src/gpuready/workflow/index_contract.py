"""The contract of a version that has none: from the metadata of its release on the user's index; wheels there and in folders."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gpuready import contracts, system
from gpuready.apply import uv
from gpuready.apply.index_release import IndexRelease, find_index_release
from gpuready.apply.resolution_request import exact_specifier
from gpuready.apply.uv import UvSettings
from gpuready.apply.wheel_search import find_wheels
from gpuready.contracts.catalogued_release import (
    contract_from_metadata,
    judge_by_catalogue,
    list_torch_extras,
    with_torch_extra,
)
from gpuready.contracts.pins import add_metadata_pins, marker_environment, merge_metadata_pins, without_package_pins
from gpuready.model import Contract, Fact, Facts
from gpuready.model.plan import Plan
from gpuready.plan.platform import PlanRequest
from gpuready.workflow import contract_choice
from gpuready.workflow.fallback import FindTorch, FindWheels
from gpuready.workflow.refusal import Refused, call_or_refuse

ReleaseFinder = Callable[[str, str | None], IndexRelease | None]  # distribution, version


USUAL_PYTHON = "3.12"
"""The Python for which markers are evaluated where none is stated."""


def make_release_finder(
    facts: Facts, request: PlanRequest, find_links: Sequence[str], offline: bool, use_project_config: bool
) -> ReleaseFinder:
    """Return a function that reads what a release requires from the user's index."""
    python = ".".join((request.python or USUAL_PYTHON).split(".")[:2])

    def find_release(name: str, version: str | None) -> IndexRelease | None:
        host = system.LiveHost()
        settings = call_or_refuse(uv.make_uv_settings, host, find_links, offline, use_project_config)
        return find_index_release(host, name, exact_specifier(version) if version else "", python, settings)

    return find_release


def judge_by_index(facts: Facts, borrowed: Contract, find_release: ReleaseFinder | None) -> list[Contract]:
    """Return a borrowed contract with the pins of the asked version's own metadata; what is borrowed only advises.

    Where the catalogue does not know the version either, the borrowed pins are tried first, and bind nobody.
    """
    name = borrowed.distribution or borrowed.framework
    release = find_release(name, borrowed.version) if find_release else None
    if release is None or not release.requires_dist:
        known = judge_by_catalogue(borrowed)
        is_known = any(need.level == "required" for need in known.needs)
        return [known] if is_known else [borrowed.replace(says=known.says), known]
    return [merge_metadata_pins(borrowed, release.version, *_release_pins(facts, release))]


def contracts_by_release(facts: Facts, contract: Contract, find_release: ReleaseFinder) -> Iterator[Contract]:
    """Yield a contract with the pins of its release on the index, then without any: each patch has its own."""
    release = find_release(contract.distribution or contract.framework, contract.version)
    if release is not None and release.requires_dist:
        requires, _, environment = _release_pins(facts, release)
        yield add_metadata_pins(contract, release.version, requires, environment)
    if release is not None:
        yield without_package_pins(contract)


def choose_package_contract(
    facts: Facts, framework: str, version: str | None, find_release: ReleaseFinder | None
) -> Contract:
    """Return the contract of a package that has none: by its installed metadata, else by that of the index."""
    requires = facts.value_if_known("python.requires") or {}
    if framework in requires or find_release is None:
        return contract_choice.choose_contract(facts, framework, version, None)
    release = find_release(framework, version)
    if release is None:
        raise Refused(str(contracts.unknown_contract_error(framework)))
    contract = contract_from_metadata(framework, release.version, *_release_pins(facts, release))
    if "cuda" in contract.platforms:
        return contract
    by_extra = with_torch_extra(contract)
    if by_extra is None:
        extras = ", ".join(list_torch_extras(contract))
        only = f" but with an extra ({extras})" if extras else ""
        raise Refused(
            f"{contracts.unknown_contract_error(framework)}; the {framework} of the index does not need torch{only}"
        )
    return by_extra


def _release_pins(facts: Facts, release: IndexRelease) -> tuple[list[str], str, dict[str, str]]:
    """Return the pins of a release, its Python, and the environment for their markers."""
    usual = {"os.system": "linux", "os.arch": "x86_64", "python.version": f"{USUAL_PYTHON}.0"}
    taken = [Fact(key, value, "usual", "stated") for key, value in usual.items() if not facts.value_if_known(key)]
    return list(release.requires_dist), release.requires_python, marker_environment(facts.with_facts(*taken))


def list_folder_wheels(host: system.HostAccess, resolve_options: Mapping[str, Any]) -> list[str]:
    """Return the file names in every configured folder of wheels."""
    folders = wheel_folders(host, resolve_options)
    return [name for folder in folders for name in host.list_directory(folder) or () if name.endswith(".whl")]


def wheel_folders(host: system.HostAccess, resolve_options: Mapping[str, Any]) -> tuple[str, ...]:
    return _make_uv_settings(host, resolve_options).folders


def make_wheel_finder(host: system.HostAccess, resolve_options: Mapping[str, Any]) -> FindWheels:
    """Return a function that says which packages of a lock have a wheel for the Python of a plan."""
    return lambda rows, plan: find_wheels(host, rows, plan, _make_uv_settings(host, resolve_options))


def make_torch_finder(host: system.HostAccess, resolve_options: Mapping[str, Any]) -> FindTorch:
    """Return a function that names the newest torch below a version that the configured indexes and folders have."""

    def find_torch(plan: Plan, below: str) -> str:
        settings = _make_uv_settings(host, resolve_options)
        release = find_index_release(host, "torch", f"<{below}", plan.python, settings, plan.platform)
        return release.version if release is not None and release.has_wheel else ""

    return find_torch


def _make_uv_settings(host: system.HostAccess, resolve_options: Mapping[str, Any]) -> UvSettings:
    names = ("find_links", "offline", "use_project_config")
    return call_or_refuse(uv.make_uv_settings, host, *(resolve_options[name] for name in names))
