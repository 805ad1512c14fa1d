"""Fix steps: what to install, with which build of torch, into which Python."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpuready.catalog import cuda as toolkits
from gpuready.catalog import torch as catalogue
from gpuready.catalog.kernels import find_kernel
from gpuready.catalog.torch import TorchBuild
from gpuready.contracts import when as conditions
from gpuready.contracts.catalogued_release import find_wheel_cuda
from gpuready.model import Contract, Facts, FixStep, versions
from gpuready.rules import contract_needs

TORCH_BUILDS = ("torch", "torchvision", "torchaudio")
"""Packages whose builds (+cu128) are on PyTorch's indexes."""

JETSON_CAPABILITIES = ("5.3", "6.2", "7.2", "8.7")
"""Of Jetsons before Thor alone, whose system takes no wheel of an index: those for aarch64 are for servers."""

READS = ("python.path", "env.PYTHONPATH", "driver.version", "driver.compat", *contract_needs.READS)


def install_step(facts: Facts, does: str, *words: str, note: str = "") -> FixStep:
    """Return a step that installs into the target's Python after confirmation."""
    return FixStep(does, _uv_pip_command(facts, "install", words), "ask", note=note)


def reinstall_step(facts: Facts, does: str, *names: str) -> FixStep:
    """Return a step that installs these packages again in their versions, and changes no other."""
    words = [pin_installed(facts, name) for name in names]
    builds = sorted({word.partition("+")[2] for word in words if "+" in word})
    backend = ("--torch-backend", builds[0]) if len(builds) == 1 else ()  # only PyTorch's own indexes have them
    return install_step(facts, does, *backend, "--reinstall", "--no-deps", *words)


def pin_installed(facts: Facts, name: str) -> str:
    """Return the requirement for the installed version; without the build of a package that no index has builds of."""
    version = str(facts.value_if_known(f"package.{name}") or "")
    known = version if name in TORCH_BUILDS else version.partition("+")[0]
    return f"{name}=={known}" if known else name


def find_path_copies(facts: Facts, names: Iterable[str]) -> dict[str, str]:
    """Return the packages that PYTHONPATH brings, with their folders: no install into the environment replaces those."""
    folders = [folder.rstrip("/") for folder in str(facts.value_if_known("env.PYTHONPATH") or "").split(":") if folder]
    sources = {name: str(facts.fact(f"package.{name}").source).rpartition("/")[0] for name in names}
    return {name: folder for name, folder in sources.items() if folder in folders}


def leave_path_copies_step(copies: Mapping[str, str]) -> tuple[FixStep, ...]:
    """Return the step that lets the environment's own packages be found."""
    if not copies:
        return ()
    names, folders = " and ".join(copies), " and ".join(dict.fromkeys(copies.values()))
    return (FixStep(f"start without {folders} in PYTHONPATH, which has {names}, or remove {names} there"),)


def uninstall_step(facts: Facts, does: str, *names: str) -> FixStep:
    """Return a step that removes packages from the target's Python after confirmation."""
    return FixStep(does, _uv_pip_command(facts, "uninstall", names), "ask")


def _uv_pip_command(facts: Facts, verb: str, words: Sequence[str]) -> tuple[str, ...]:
    path = facts.value_if_known("python.path")
    return ("uv", "pip", verb, *(("--python", str(path)) if path else ()), *words)


def format_requirement(package: str, want: str) -> str:
    """Return the requirement for an installer; of alternatives the last, which by convention is the newest."""
    last = want.rpartition("|")[2].strip()
    return package if last in ("*", "") else f"{package}{last}"


def install_packages_step(facts: Facts, contract: Contract, wants: Mapping[str, str]) -> FixStep:
    """Return one step that installs these packages at these versions, with torch as a specific build."""
    build = choose_torch_build(facts, contract, wants["torch"]) if "torch" in wants else None
    others = [format_requirement(name, want) for name, want in wants.items() if not (build and name == "torch")]
    flags, note = _build_flags(wants)
    if build is None:
        return install_step(facts, "install " + " ".join(others), *flags, *others, note=note)
    variant = "cpu" if "cpu" in (facts.value_if_known("job.wants") or ()) else build.variant
    descriptions = [f"torch {build.version} built for {variant}", *others]
    installed = str(facts.value_if_known("package.torch") or "").partition("+")[0]
    again = (
        ("--reinstall-package", "torch") if installed == build.version else ()
    )  # uv keeps another build of a release
    words = ("--torch-backend", variant, *again, *flags, f"torch=={build.version}", *others)
    return install_step(facts, "install " + ", ".join(descriptions), *words, note=note or "no root needed")


def _build_flags(names: Iterable[str]) -> tuple[tuple[str, ...], str]:
    """Return what packages need that are compiled against the installed torch: in isolation their build finds none."""
    rows = {name: row for name in names if (row := find_kernel(name)) and row["comes"] in ("release", "source")}
    flags = [word for name in rows for word in ("--no-build-isolation-package", name)]
    needs = dict.fromkeys(tool for row in rows.values() for tool in row.get("build_needs", ()))
    return tuple(
        flags
    ), f"its build uses this torch, and {', '.join(needs)}, which have to be installed" if needs else ""


def replace_torch_step(facts: Facts, contract: Contract) -> FixStep | None:
    """Return the step that installs a torch that runs here; None if the catalog has none."""
    return install_packages_step(facts, contract, {"torch": "*"}) if choose_torch_build(facts, contract) else None


def choose_torch_build(facts: Facts, contract: Contract, want: str = "*") -> TorchBuild | None:
    """Choose a torch inside the contract's pins and ``want``, for this Python, driver and GPUs."""
    return next((build for build in _candidate_builds(facts, contract, want) if _build_runs_here(facts, build)), None)


def _build_runs_here(facts: Facts, build: TorchBuild) -> bool:
    """Return whether nothing known about this machine rules out a build."""
    driver, python = facts.value_if_known("driver.version"), facts.value_if_known("python.version")
    if (
        driver
        and toolkits.driver_runs_cuda(driver, build.cuda, compat=bool(facts.value_if_known("driver.compat"))) is False
    ):
        return False
    if python and "{}.{}".format(*versions.major_minor(python)) not in build.python:
        return False
    capabilities, visible = (facts.value_if_known("gpu.capability") or (), facts.value_if_known("gpu.visible") or ())
    own_capabilities = [capabilities[i] for i in visible if i < len(capabilities)]
    return not {*own_capabilities} & {*JETSON_CAPABILITIES} and all(
        catalogue.covers_capability(build.arch, capability, build.cuda)[0] for capability in own_capabilities
    )


def _candidate_builds(facts: Facts, contract: Contract, want: str) -> Iterator[TorchBuild]:
    """Yield builds inside the pins: installed release first, then newest; PyPI builds before others."""
    machine = facts.value_if_known("os.arch") or "x86_64"
    pins, cudas = (required_pins(facts, contract, "package.torch"), required_pins(facts, contract, "torch.cuda"))
    pins += [want] if want != "*" and "|" not in want else []
    cudas += [f"=={major}.*"] if (major := find_wheel_cuda(contract)) else []
    for release in _releases_by_preference(facts):
        if all(versions.satisfies_specifier(release, pin) for pin in pins):
            builds = sorted(
                catalogue.list_torch_builds(release, machine), key=lambda b: (not b.pypi, _newest_first_key(b.cuda))
            )
            yield from (b for b in builds if all(versions.satisfies_specifier(b.cuda, pin) for pin in cudas))


def _releases_by_preference(facts: Facts) -> list[str]:
    newest_first = catalogue.list_torch_releases()[::-1]
    installed = str(facts.value_if_known("package.torch") or "").partition("+")[0]
    return sorted(newest_first, key=lambda release: release != installed)


def _newest_first_key(cuda: str) -> tuple[int, int]:
    major, minor = versions.major_minor(cuda)
    return -major, -minor


def required_pins(facts: Facts, contract: Contract, key: str) -> list[str]:
    """Return what the contract requires of one version here; unknown conditions are ignored."""
    required = [need for need in contract.requirements_for(key) if need.level == "required" and need.want != "*"]
    return [need.want for need in required if conditions.certainly_applies(need.when, facts)]
