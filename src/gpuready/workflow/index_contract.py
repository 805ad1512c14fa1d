"""The contract of a version that has none: from the metadata of its release on the user's index; wheels there and in folders."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuready import contracts, system
from gpuready.apply import uv
from gpuready.apply.index_release import IndexRelease, find_index_release, read_index_release, search_code
from gpuready.apply.resolution_request import exact_specifier
from gpuready.apply.uv import UvSettings
from gpuready.apply.wheel_search import find_wheels
from gpuready.catalog import indexes, packages
from gpuready.catalog.cuda import list_nvcc_targets, minimum_driver
from gpuready.catalog.torch import newest_torch
from gpuready.contracts.catalogued_release import (
    OWN_CUDA,
    add_catalogued_needs,
    contract_from_metadata,
    judge_by_catalogue,
    list_torch_extras,
    make_for_gpus,
    make_torch_contract,
    with_torch_extra,
)
from gpuready.contracts.pins import (
    add_metadata_pins,
    marker_environment,
    merge_metadata_pins,
    named_extra,
    pin_exact_version,
    require_extras,
)
from gpuready.model import NOT_STATED, Contract, Fact, Facts, Requirement
from gpuready.model.plan import Plan
from gpuready.model.versions import major_minor, parse_release
from gpuready.system.release_metadata import COMPILES_CUDA, IMPORTS_TORCH
from gpuready.workflow import contract_choice
from gpuready.workflow.fallback import FindTorch, FindWheels
from gpuready.workflow.refusal import Refused, call_or_refuse, suggest_nearest

COMMON_CARRIERS = ("accelerate", "peft", "torchdata", "torchvision", "lightning", "sentence-transformers")
"""Packages that usually bring torch: they are looked at first."""
MAX_LOOKUPS, FIRST_LEVEL, MAX_OLDER_RELEASES = 40, 10, 8
CUDA_IN_NAME = re.compile(r"^[\w.-]+?(?:-cu(?:da)?(1[0-9])x?\b|\[cu(1[0-9])\])")
"""The CUDA that the name of a distribution, or an extra of it, is for."""
BROUGHT_LIBRARIES = re.compile(r"^nvidia-cublas|^cuda-toolkit\[.*cublas|\[with-cuda\]")
"""The requirement by which a package brings the CUDA libraries that it loads."""
USUAL_PYTHON = "3.12"
"""The Python for which markers are evaluated where none is stated."""


class ReleaseFinder:
    """Reads what releases require from the user's index."""

    def __init__(
        self, python: str = "", find_links: Sequence[str] = (), offline: bool = False, use_project: bool = False
    ):
        self.python, self.offline = ".".join((python or USUAL_PYTHON).split(".")[:2]), offline
        self.host = system.LiveHost()
        self.settings = call_or_refuse(uv.make_uv_settings, self.host, find_links, offline, use_project)

    def __call__(self, name: str, version: str | None, below: str = "") -> IndexRelease | None:
        """Return a release as the Python of the plan sees it, else as a usual one does; ``below``: the newest before one."""
        specifier = f"<{below}" if below else exact_specifier(version) if version else ""
        for python in dict.fromkeys((self.python, USUAL_PYTHON)):
            found = find_index_release(self.host, name, specifier, python, self.settings)
            if found is not None:
                return found
        return None

    def refuse_missing(self, name: str, version: str | None) -> Refused:
        """Return why there is nothing to judge a package by: it is not known, its version is not, or the index was not read."""
        newest = self(name, None) if version else None
        if newest is not None:
            return Refused(f"{name} has no release {version} on the index; its newest is {newest.version}")
        try:
            read_index_release(self.host, name, "", self.python, self.settings)
        except (system.AccessError, ValueError, LookupError) as error:
            why = "--offline asks no index, and what it requires is in no cache" if self.offline else str(error)
            near = suggest_nearest(name, contracts.list_frameworks())
            return Refused(f"there is nothing to judge {name!r} by: {why}{near}; --contract FILE takes your own")
        return Refused(f"{name} {version} is not on the index")

    def has_to_compile(self, name: str, version: str) -> bool:
        """Whether only the source of a release is on the index, and an install compiles CUDA code, as what was not read may."""
        one = self(name, version)
        return one is not None and not one.has_wheel and search_code(self.host, one, self.settings, COMPILES_CUDA) != ""

    def brings_torch(self, contract: Contract) -> bool:
        """Whether what a package requires, or what that requires, needs torch."""
        left, looked = _list_required(contract), 0
        while left and looked < MAX_LOOKUPS:
            left.sort(key=lambda name: name not in COMMON_CARRIERS)
            looked, release = looked + 1, self(left.pop(0), None)
            if release is None:
                continue
            one = contract_from_metadata(release.name, release.version, release.requires_dist)
            if "cuda" in one.platforms:
                return True
            left += [name for name in _list_required(one) if name not in left] if looked <= FIRST_LEVEL else []
        return False


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
    pinned = merge_metadata_pins(borrowed, release.version, *_release_pins(facts, release))
    return [_with_own_files(add_catalogued_needs(pinned), release)]


def contracts_by_release(facts: Facts, contract: Contract, find_release: ReleaseFinder) -> Iterator[Contract]:
    """Yield a contract with the pins of its release on the index: each patch has its own."""
    release = find_release(contract.distribution or contract.framework, contract.version)
    if release is not None and release.requires_dist:
        requires, _, environment = _release_pins(facts, release)
        yield add_metadata_pins(contract, release.version, requires, environment)


def choose_contract_by_index(
    facts: Facts, spec: contract_choice.FrameworkSpec, extras: Sequence[str], ask_index: bool
) -> Contract:
    """Return the contract of a package without one, or with extras: by its installed metadata, else by that of the index."""
    framework, version, variant = spec
    finder = ReleaseFinder(str(facts.value_if_known("python.version") or "")) if ask_index else None
    if contracts.has_contract(framework):
        chosen = contract_choice.choose_contract(facts, framework, version, variant)
        is_installed = contracts.distribution_name(framework) in (facts.value_if_known("python.requires") or {})
        if finder and version and contracts.is_borrowed(chosen) and not is_installed:
            borrowed = call_or_refuse(contracts.load_contract, framework, version, variant)
            chosen = pin_exact_version(judge_by_index(facts, borrowed, finder)[-1], version, None)
        return add_extras(facts, chosen, extras, finder)
    return add_extras(facts, choose_package_contract(facts, framework, version, finder, extras), extras, finder)


def add_extras(facts: Facts, contract: Contract, extras: Sequence[str], find_release: ReleaseFinder | None) -> Contract:
    """Return the contract with what its release adds for these extras, as far as its metadata can be had."""
    name = contract.distribution or contract.framework
    installed = (facts.value_if_known("python.requires") or {}).get(name)
    release = find_release(name, contract.version) if extras and find_release and not installed else None
    lines = installed["requires_dist"] if installed else release.requires_dist if release else None
    if not extras or lines is None:
        return contract
    environment = marker_environment(_with_usual_system(facts))
    return call_or_refuse(require_extras, contract, contract.version, lines, extras, environment)


def choose_package_contract(
    facts: Facts, framework: str, version: str | None, find_release: ReleaseFinder | None, extras: Sequence[str] = ()
) -> Contract:
    """Return the contract of a package that has none: by its installed metadata, else by that of the index.

    ``extras``: those that may bring the CUDA of a package that needs no torch.
    """
    requires = facts.value_if_known("python.requires") or {}
    if framework == "torch":
        bare = make_torch_contract(version or newest_torch(), "torch")
        return pin_exact_version(bare, version, None) if version else bare
    if framework in requires or find_release is None or facts.value_if_known(f"package.{framework}"):
        return contract_choice.choose_contract(facts, framework, version, None)
    if own := indexes.find_repository(framework):
        build = f"uv pip install --no-build-isolation git+{own['git']}"
        raise Refused(f"{framework}: {own['why']}: `{build}`, with nvcc, after the torch of `gpuready plan torch`")
    release = find_release(framework, version)
    if release is None:
        raise find_release.refuse_missing(framework, version)
    if (other := packages.find_lookalike(framework)) and other["version"] == release.version:
        raise Refused(f"{framework} {release.version} is not {other['wanted']}. {other['why']}")
    contract = contract_from_metadata(framework, release.version, *_release_pins(facts, release))
    contract = _with_own_files(contract, release)
    if "cuda" in contract.platforms:
        return contract
    if by_extra := with_torch_extra(contract):
        return by_extra
    torch = facts.value_if_known("package.torch")
    has_own = not torch and packages.find_own_cuda(release.name, release.version)
    if not has_own and find_release.brings_torch(contract):
        return make_for_gpus(contract, f"{framework} {release.version} brings torch by what it requires")
    if not has_own and search_code(find_release.host, release, find_release.settings, IMPORTS_TORCH):
        return make_for_gpus(
            contract, f"files of {framework} {release.version}: they import torch, and its metadata does not name it"
        )
    if torch and framework in packages.names_in_import_conflicts():
        return make_for_gpus(contract, f"{framework} was asked for beside torch {torch}")
    if needs := _need_own_cuda(facts, contract, release, find_release, extras):
        kept = (need for need in contract.needs if need.key != "torch.cuda")
        return contract.replace(platforms=(), needs=(*kept, *needs), says=f"{framework} {OWN_CUDA}")
    with_torch = ", ".join(f"{framework}[{one}]" for one in list_torch_extras(contract))
    only = f"; with an extra it does: {with_torch}" if with_torch else ""
    near = "" if only else suggest_nearest(framework, contracts.list_frameworks())
    raise Refused(
        f"{framework} {release.version} needs no torch, by its metadata and code; its own libraries are not judged{only}{near}"
    )


def _need_own_cuda(
    facts: Facts, contract: Contract, release: IndexRelease, find_release: ReleaseFinder, extras: Sequence[str] = ()
) -> list[Requirement]:
    """Return the driver and GPU for the CUDA that a package, or what it requires, loads without torch; of a machine that is only described the libraries too, unless it brings them."""
    rows = [packages.find_own_cuda(release.name, release.version)]
    for need in contract.requirements_for("package.*") if not rows[0] else ():
        brought = None if need.when else find_release(need.key.removeprefix("package."), None)
        rows.append(packages.find_own_cuda(brought.name, brought.version) if brought else None)
    row: dict[str, Any] = next(filter(None, rows), {})
    asked = [one for one in release.requires_dist if ";" not in one or named_extra(one) in extras]
    lines = asked if extras else release.requires_dist
    named = {hit[1] or hit[2] for one in (release.name, *lines) if (hit := CUDA_IN_NAME.search(one))}
    if not row and not named:
        return []
    cite = str(row.get("source") or f"METADATA of {release.name} {release.version}")
    cuda = f"{row.get('cuda') or min(named)}.0"
    oldest = min(list_nvcc_targets(cuda) or ("0.0",), key=major_minor)
    wanted = {"toolkit.version": "*", "cudnn.version": row.get("cudnn", "")}
    is_brought = any(BROUGHT_LIBRARIES.search(one) for one in asked)
    libraries = {key: want for key, want in wanted.items() if want and facts.fact(key).gap == NOT_STATED}
    wants = {"driver.version": f">={minimum_driver(cuda)[0]}", "gpu.capability": f">={oldest}"}
    return [Requirement(key, want, cite=cite) for key, want in (wants | ({} if is_brought else libraries)).items()]


def list_older_releases(facts: Facts, contract: Contract, find_release: ReleaseFinder) -> Iterator[Contract]:
    """Yield the contracts of older releases of a package on the index: the newest of each line, the newest line first."""
    name, version = contract.framework, contract.version
    for _ in range(MAX_OLDER_RELEASES):
        *line, _ = parse_release(version)
        below = ".".join(map(str, line)) if len(line) > 1 and any(line) else version.partition(".post")[0]
        release = find_release(name, None, below)
        if release is None or not release.has_wheel:
            return
        version = release.version
        yield pin_exact_version(choose_package_contract(facts, name, version, find_release), version, None)


def _release_pins(facts: Facts, release: IndexRelease) -> tuple[list[str], str, dict[str, str]]:
    """Return the pins of a release, its Python, and the environment for their markers."""
    return list(release.requires_dist), release.requires_python, marker_environment(_with_usual_system(facts))


def _next_minor(python: str) -> tuple[int, int]:
    major, minor = major_minor(python)
    return major, minor + 1


def _with_own_files(contract: Contract, release: IndexRelease) -> Contract:
    """Return the contract with the day of a release, the Pythons of its wheels and the CUDA of the distributions that a release always requires: ``cuda-tile[cu13]``, ``cupy-cuda12x``."""
    contract = contract.replace(released=release.uploaded)
    if release.pythons:
        want = "<{}.{}".format(*_next_minor(release.pythons[-1]))
        wheels = Requirement("python.version", want, cite=f"wheels of {release.name} {release.version}")
        contract = contract.replace(needs=(*contract.needs, wheels))
    named = [one for one in release.requires_dist if ";" not in one]
    found = {(hit[1] or hit[2], one) for one in named if (hit := CUDA_IN_NAME.search(one))}
    row = packages.find_own_cuda(release.name, release.version)
    found |= {(row["cuda"], row["source"])} if row else set()
    if len({major for major, _ in found}) != 1:
        return contract
    major, line = next(iter(found))
    cite = f"METADATA of {release.name} {release.version}: {line}"
    kept = [need for need in contract.needs if need.key != "torch.cuda"]
    need = Requirement("torch.cuda", f">={major},<{int(major) + 1}", cite=cite)
    return contract.replace(needs=(*kept, need))


def _list_required(contract: Contract) -> list[str]:
    return [n.key.removeprefix("package.") for n in contract.requirements_for("package.*") if not n.when]


def _with_usual_system(facts: Facts) -> Facts:
    usual = {"os.system": "linux", "os.arch": "x86_64", "python.version": f"{USUAL_PYTHON}.0"}
    taken = [Fact(key, value, "usual", "stated") for key, value in usual.items() if not facts.value_if_known(key)]
    return facts.with_facts(*taken)


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
