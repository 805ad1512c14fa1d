"""The values that the contract and the catalogue allow for facts that are not stated."""

from collections.abc import Callable, Iterable, Iterator
from functools import cache

from gpuready.catalog import cuda, indexes, torch
from gpuready.catalog.kernels import uses_cxx11_abi
from gpuready.contracts import want, when
from gpuready.model import Contract, Fact, Facts, Requirement, UnknownFactError, versions
from gpuready.model.versions import is_version

LAST_INTEL_MAC = "2.2.2"
"""The last torch with wheels for Macs with an Intel processor (wheel tags of torch on PyPI)."""

PYTHONS = ("3.8", "3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15")


def unstated_fact_options(facts: Facts, contract: Contract) -> Callable[[str], Iterable[Facts]]:
    """Return a function from an unstated fact to copies of the facts, one for each possible value."""

    @cache
    def facts_with_torch() -> list[Facts]:
        return [facts.with_facts(*build) for build in _allowed_torch_builds(facts, contract)]

    own_key = f"package.{contract.distribution or contract.framework}"

    def facts_with_each_value(key: str) -> Iterator[Facts]:
        if key.startswith("torch.") or key in ("package.torch", "nccl.version", "cudnn.version"):
            yield from facts_with_torch()
        elif key == own_key and is_version(contract.version):
            yield facts.with_facts(Fact(key, contract.version, contract.origin, "stated"))
        elif key == "driver.version":
            yield from (facts.with_facts(Fact(key, d, "catalogue", "stated")) for d in cuda.list_release_drivers())
        elif key == "python.version":
            yield from (facts.with_facts(Fact(key, p, "catalogue", "stated")) for p in PYTHONS)

    return facts_with_each_value


def _allowed_torch_builds(facts: Facts, contract: Contract) -> Iterator[list[Fact]]:
    machine, python = facts.value_if_known("os.arch") or "x86_64", facts.value_if_known("python.version")
    torch_needs = [*contract.requirements_for("package.torch"), *contract.requirements_for("torch.cuda")]
    for build in _builds_of_platform(facts, str(machine)):
        build_facts_list = make_build_facts(build)
        on = facts.with_facts(*build_facts_list)
        fits = python is None or ".".join(python.split(".")[:2]) in build.python
        if fits and all(_need_allows_build(need, on) for need in torch_needs if need.level == "required"):
            yield build_facts_list


def _builds_of_platform(facts: Facts, machine: str) -> Iterable[torch.TorchBuild]:
    """Return the builds for CUDA, or those of another platform; empty where the catalogue has none for it."""
    platform = facts.value_if_known("platform.name")
    if platform in ("rocm", "mps"):
        return list_selectable_builds(machine, platform, facts.value_if_known("os.system") or "linux")
    if platform not in (None, "cuda", "cpu"):
        return ()
    releases = reversed(torch.list_torch_releases())
    return (build for version in releases for build in torch.list_torch_builds(version, machine))


def _need_allows_build(need: Requirement, facts: Facts) -> bool:
    """Whether a need on torch allows this build; True if it cannot be decided."""
    try:
        return not when.condition_applies(need.when, facts) or want.value_meets_want(need.want, facts.value(need.key))
    except UnknownFactError:
        return True


def make_torch_facts(version: str, cuda_or_variant: str | None, machine: str = "x86_64") -> list[Fact]:
    """Return the facts of one torch build; of one that the catalogue does not know, what its label says."""
    plain = cuda_or_variant if cuda_or_variant and cuda_or_variant.startswith(("cpu", "rocm")) else ""
    build = (
        _make_plain_build(version, machine, plain)
        if plain
        else torch.find_torch_build(version, cuda_or_variant, machine)
    )
    if build is None:
        return _labelled_torch_facts(version, cuda_or_variant or "")
    return make_build_facts(build)


def _labelled_torch_facts(version: str, label: str) -> list[Fact]:
    full, cuda = f"{version}+{label}" if label else version, torch.parse_cuda_label(label) if label else None
    stated = {"torch.version": full, "package.torch": full} | (
        {"torch.cuda": cuda, "torch.build": "cuda"} if cuda else {}
    )
    return [Fact(key, value, "the version's label", "stated") for key, value in stated.items()]


@cache
def make_build_facts(build: torch.TorchBuild) -> list[Fact]:
    """Return the facts of a build, including CPU-only ones."""
    source = f"catalogue: torch {build.version} {build.variant}"
    stated: dict[str, object] = {
        "torch.version": f"{build.version}+{build.variant}",
        "torch.cuda": build.cuda or None,
        "torch.build": "cuda" if build.cuda else "rocm" if build.variant.startswith("rocm") else "cpu",
        "torch.arch": tuple(build.arch),
        "package.torch": f"{build.version}+{build.variant}",
    }
    if build.cuda:
        stated["torch.abi"] = uses_cxx11_abi(build)
    if build.variant.startswith("rocm"):
        stated["torch.hip"] = build.variant.removeprefix("rocm")
    return [Fact(key, value, source, "stated") for key, value in stated.items()]


@cache
def list_selectable_builds(machine: str, device: str, system: str = "linux") -> list[torch.TorchBuild]:
    """List every build that could be chosen on a kind of machine, newest release first.

    ``device``: cuda, rocm, or cpu and mps, which share a build. On Windows the default index has builds without CUDA.
    """
    found: list[torch.TorchBuild] = []
    for version in reversed(torch.list_torch_releases()):
        if device == "cuda":
            builds = reversed(torch.list_torch_builds(version, machine)) if system != "darwin" else ()
            found += [b.replace(pypi=b.pypi and system == "linux") for b in builds]
        elif device == "rocm":
            found += _rocm_builds(version, machine) if system == "linux" else []
        elif _has_plain_build(version, machine, system):
            found.append(_make_plain_build(version, machine, "cpu", system))
    return found


def _has_plain_build(version: str, machine: str, system: str) -> bool:
    """Whether a release has a build without CUDA: those for Macs with an Intel processor ended."""
    return system != "darwin" or machine != "x86_64" or versions.compare_versions(version, LAST_INTEL_MAC) <= 0


def _rocm_builds(version: str, machine: str) -> list[torch.TorchBuild]:
    known = reversed(torch.list_rocm_variants(version)) if machine == "x86_64" else ()
    return [_make_plain_build(version, machine, variant) for variant in known if variant in indexes.list_indexes()]


def _make_plain_build(version: str, machine: str, variant: str, system: str = "linux") -> torch.TorchBuild:
    """A build without CUDA: every release has one on the index ``cpu``, and on PyPI for other systems than Linux."""
    row = torch.find_torch_release(version) or {}
    intel = machine == "x86_64"
    on_pypi = system != "linux" or (not intel and row["pypi_aarch64"] == "cpu")
    return torch.TorchBuild(
        version=version,
        cuda="",
        variant=variant,
        machine=machine,
        pypi=variant == "cpu" and on_pypi,
        arch=(),
        aarch64=(),
        python=tuple(row["python" if intel else "python_aarch64"]),
        driver_floor=None,
        nccl=None,
        cudnn=None,
        cite=row["source"],
    )
