"""What could stand where a what-if states nothing: the values that the contract and the catalogue allow."""

from __future__ import annotations

from gpuready.catalog import cuda, remembered, torch
from gpuready.contracts import want, when
from gpuready.model import Fact, Unknown

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gpuready.model import Contract, Facts, Need

PYTHONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14", "3.15")


def options(facts: Facts, contract: Contract) -> Callable[[str], Iterable[Facts]]:
    """For a fact that is not stated: these facts, once with each value that could stand there."""

    def tried(key: str) -> Iterator[Facts]:
        if key.startswith("torch.") or key in ("package.torch", "nccl.version", "cudnn.version"):
            yield from (facts.also(*build) for build in _torch_builds(facts, contract))
        elif key == "driver.version":
            yield from (facts.also(Fact(key, d, "catalogue", "stated")) for d in cuda.drivers())
        elif key == "python.version":
            yield from (facts.also(Fact(key, p, "catalogue", "stated")) for p in PYTHONS)

    return tried


def _torch_builds(facts: Facts, contract: Contract) -> Iterator[list[Fact]]:
    machine, python = facts.known("os.arch") or "x86_64", facts.known("python.version")
    asked = [*contract.wants("package.torch"), *contract.wants("torch.cuda")]
    for version in reversed(torch.releases()):
        for build in torch.builds(version, machine):
            found = torch_facts(version, build.cuda, machine)
            on = facts.also(*found)
            fits = python is None or ".".join(python.split(".")[:2]) in build.python
            if fits and all(_allows(need, on) for need in asked if need.level == "required"):
                yield found


def _allows(need: Need, facts: Facts) -> bool:
    """Whether a need on torch leaves room for this build; one that nobody can judge here does."""
    try:
        return not when.applies(need.when, facts) or want.holds(need.want, facts.value(need.key))
    except Unknown:
        return True


def torch_facts(version: str, cuda_or_variant: str | None, machine: str = "x86_64") -> list[Fact]:
    """The facts of one torch build as the catalogue has it. ValueError where it has none."""
    build = torch.build(version, cuda_or_variant, machine)
    if build is None:
        raise ValueError(f"the catalogue knows no torch {version} built for {cuda_or_variant} on {machine}")
    return build_facts(build)


def build_facts(build: torch.Build) -> list[Fact]:
    """The facts of a build, also of one for the CPU alone."""
    source = f"catalogue: torch {build.version} {build.variant}"
    stated = {
        "torch.version": f"{build.version}+{build.variant}",
        "torch.cuda": build.cuda or None,
        "torch.build": "cuda" if build.cuda else "cpu",
        "torch.arch": tuple(build.arch),
        "package.torch": f"{build.version}+{build.variant}",
    }
    return [Fact(key, value, source, "stated") for key, value in stated.items()]


@remembered
def domain(machine: str, cpu: bool) -> list[torch.Build]:
    """Every build that could be chosen on a kind of machine, the newest release first."""
    found: list[torch.Build] = []
    for version in reversed(torch.releases()):
        found += [_cpu_build(version, machine)] if cpu else reversed(torch.builds(version, machine))
    return found


def _cpu_build(version: str, machine: str) -> torch.Build:
    """The build without CUDA, which every release has on the index ``cpu`` and older ones on PyPI for aarch64."""
    row = torch.release(version) or {}
    intel = machine == "x86_64"
    return torch.Build(
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
