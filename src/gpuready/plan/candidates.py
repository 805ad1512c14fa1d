"""The values that the contract and the catalogue allow for facts that are not stated."""

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
    """Return a function from an unstated fact to copies of the facts, one for each possible value."""

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
    """Whether a need on torch allows this build; True if it cannot be decided."""
    try:
        return not when.applies(need.when, facts) or want.holds(need.want, facts.value(need.key))
    except Unknown:
        return True


def torch_facts(version: str, cuda_or_variant: str | None, machine: str = "x86_64") -> list[Fact]:
    """Return the facts of one torch build of the catalogue; ValueError if there is none."""
    build = torch.build(version, cuda_or_variant, machine)
    if build is None:
        raise ValueError(f"the catalogue knows no torch {version} built for {cuda_or_variant} on {machine}")
    return build_facts(build)


def build_facts(build: torch.Build) -> list[Fact]:
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


@remembered
def domain(machine: str, cpu: bool) -> list[torch.Build]:
    """List every build that could be chosen on a kind of machine, newest release first."""
    found: list[torch.Build] = []
    for version in reversed(torch.releases()):
        found += [_cpu_build(version, machine)] if cpu else reversed(torch.builds(version, machine))
    return found


def _cpu_build(version: str, machine: str) -> torch.Build:
    """The build without CUDA: every release has one on the index ``cpu``, older ones on PyPI for aarch64."""
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
