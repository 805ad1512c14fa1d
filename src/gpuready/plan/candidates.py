"""The values that the contract and the catalogue allow for facts that are not stated."""

from __future__ import annotations

from functools import cache

from gpuready.catalog import cuda, torch
from gpuready.contracts import want, when
from gpuready.model import Fact, UnknownFactError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gpuready.model import Contract, Facts, Requirement

PYTHONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15")


def unstated_fact_options(facts: Facts, contract: Contract) -> Callable[[str], Iterable[Facts]]:
    """Return a function from an unstated fact to copies of the facts, one for each possible value."""

    @cache
    def facts_with_torch() -> list[Facts]:
        return [facts.with_facts(*build) for build in _allowed_torch_builds(facts, contract)]

    def facts_with_each_value(key: str) -> Iterator[Facts]:
        if key.startswith("torch.") or key in ("package.torch", "nccl.version", "cudnn.version"):
            yield from facts_with_torch()
        elif key == "driver.version":
            yield from (facts.with_facts(Fact(key, d, "catalogue", "stated")) for d in cuda.list_release_drivers())
        elif key == "python.version":
            yield from (facts.with_facts(Fact(key, p, "catalogue", "stated")) for p in PYTHONS)

    return facts_with_each_value


def _allowed_torch_builds(facts: Facts, contract: Contract) -> Iterator[list[Fact]]:
    machine, python = facts.value_if_known("os.arch") or "x86_64", facts.value_if_known("python.version")
    torch_needs = [*contract.requirements_for("package.torch"), *contract.requirements_for("torch.cuda")]
    for version in reversed(torch.list_torch_releases()):
        for build in torch.list_torch_builds(version, machine):
            build_facts_list = make_build_facts(build)
            on = facts.with_facts(*build_facts_list)
            fits = python is None or ".".join(python.split(".")[:2]) in build.python
            if fits and all(_need_allows_build(need, on) for need in torch_needs if need.level == "required"):
                yield build_facts_list


def _need_allows_build(need: Requirement, facts: Facts) -> bool:
    """Whether a need on torch allows this build; True if it cannot be decided."""
    try:
        return not when.condition_applies(need.when, facts) or want.value_meets_want(need.want, facts.value(need.key))
    except UnknownFactError:
        return True


def make_torch_facts(version: str, cuda_or_variant: str | None, machine: str = "x86_64") -> list[Fact]:
    """Return the facts of one torch build of the catalogue; ValueError if there is none."""
    is_cpu = cuda_or_variant == "cpu"
    build = _make_cpu_build(version, machine) if is_cpu else torch.find_torch_build(version, cuda_or_variant, machine)
    if build is None:
        raise ValueError(f"the catalogue knows no torch {version} built for {cuda_or_variant} on {machine}")
    return make_build_facts(build)


def make_build_facts(build: torch.TorchBuild) -> list[Fact]:
    """Return the facts of a build, including CPU-only ones."""
    source = f"catalogue: torch {build.version} {build.variant}"
    stated = {
        "torch.version": f"{build.version}+{build.variant}",
        "torch.cuda": build.cuda or None,
        "torch.build": "cuda" if build.cuda else "cpu",
        "torch.arch": tuple(build.arch),
        "package.torch": f"{build.version}+{build.variant}",
    }
    return [Fact(key, value, source, "stated") for key, value in stated.items()]


@cache
def list_selectable_builds(machine: str, cpu: bool) -> list[torch.TorchBuild]:
    """List every build that could be chosen on a kind of machine, newest release first."""
    found: list[torch.TorchBuild] = []
    for version in reversed(torch.list_torch_releases()):
        found += [_make_cpu_build(version, machine)] if cpu else reversed(torch.list_torch_builds(version, machine))
    return found


def _make_cpu_build(version: str, machine: str) -> torch.TorchBuild:
    """The build without CUDA: every release has one on the index ``cpu``, older ones on PyPI for aarch64."""
    row = torch.find_torch_release(version) or {}
    intel = machine == "x86_64"
    return torch.TorchBuild(
        version=version,
        cuda="",
        variant="cpu",
        machine=machine,
        pypi=not intel and row["pypi_aarch64"] == "cpu",
        arch=(),
        aarch64=(),
        python=tuple(row["python" if intel else "python_aarch64"]),
        driver_floor=None,
        nccl=None,
        cudnn=None,
        cite=row["source"],
    )
