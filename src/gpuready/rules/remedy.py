"""Fix steps: what to install, with which build of torch, into which Python."""

from __future__ import annotations

from gpuready import versions
from gpuready.catalog import cuda as toolkits
from gpuready.catalog import torch as catalogue
from gpuready.model import Facts, Step
from gpuready.rules import needs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gpuready.catalog.torch import Build
    from gpuready.model import Contract

READS = ("python.path", "driver.version", "driver.compat", *needs.READS)


def install(facts: Facts, does: str, *words: str, note: str = "") -> Step:
    """Return a step that installs into the target's Python after confirmation."""
    path = facts.known("python.path")
    where = ("--python", str(path)) if path else ()
    return Step(does, ("uv", "pip", "install", *where, *words), "ask", note=note)


def requirement(package: str, want: str) -> str:
    """Return the requirement for an installer; of alternatives the last, which by convention is the newest."""
    last = want.rpartition("|")[2].strip()
    return package if last in ("*", "") else f"{package}{last}"


def packages(facts: Facts, contract: Contract, wants: Mapping[str, str]) -> Step:
    """Return one step that installs these packages at these versions, with torch as a specific build."""
    build = torch_build(facts, contract) if "torch" in wants else None
    others = [requirement(name, want) for name, want in wants.items() if not (build and name == "torch")]
    if build is None:
        return install(facts, "install " + " ".join(others), *others)
    said = [f"torch {build.version} built for {build.variant}", *others]
    words = ("--torch-backend", build.variant, f"torch=={build.version}", *others)
    return install(facts, "install " + ", ".join(said), *words, note="no root needed")


def another_torch(facts: Facts, contract: Contract) -> Step | None:
    """Return the step that installs a torch that runs here; None if the catalog has none."""
    return packages(facts, contract, {"torch": "*"}) if torch_build(facts, contract) else None


def torch_build(facts: Facts, contract: Contract) -> Build | None:
    """Choose a torch inside the contract's pins, for this Python, driver and GPUs."""
    return next((build for build in _candidates(facts, contract) if _runs_here(facts, build)), None)


def _runs_here(facts: Facts, build: Build) -> bool:
    """Return whether nothing known about this machine rules out a build."""
    driver, python = facts.known("driver.version"), facts.known("python.version")
    if driver and toolkits.runs(driver, build.cuda, compat=bool(facts.known("driver.compat"))) is False:
        return False
    if python and "{}.{}".format(*versions.minor(python)) not in build.python:
        return False
    capabilities, shown = facts.known("gpu.capability") or (), facts.known("gpu.visible") or ()
    mine = [capabilities[i] for i in shown if i < len(capabilities)]
    return all(catalogue.covers(build.arch, capability, build.cuda)[0] for capability in mine)


def _candidates(facts: Facts, contract: Contract) -> Iterator[Build]:
    """Yield builds inside the pins: installed release first, then newest; PyPI builds before others."""
    machine = facts.known("os.arch") or "x86_64"
    pins, cudas = pins_on(facts, contract, "package.torch"), pins_on(facts, contract, "torch.cuda")
    for release in _releases(facts):
        if all(versions.satisfies(release, pin) for pin in pins):
            builds = sorted(
                catalogue.builds(release, machine), key=lambda b: (not b.pypi, _newer_first(b.cuda))
            )
            yield from (b for b in builds if all(versions.satisfies(b.cuda, pin) for pin in cudas))


def _releases(facts: Facts) -> list[str]:
    newest_first = catalogue.releases()[::-1]
    installed = str(facts.known("package.torch") or "").partition("+")[0]
    return sorted(newest_first, key=lambda release: release != installed)


def _newer_first(cuda: str) -> tuple[int, int]:
    major, minor = versions.minor(cuda)
    return -major, -minor


def pins_on(facts: Facts, contract: Contract, key: str) -> list[str]:
    """Return what the contract requires of one version here; unknown conditions are ignored."""
    required = [need for need in contract.wants(key) if need.level == "required" and need.want != "*"]
    return [need.want for need in required if needs.surely(facts, need)]
