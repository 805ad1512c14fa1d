"""The reasons for a choice, the versions it decides, and notes on it."""

from collections.abc import Sequence

from gpuready import contracts
from gpuready.catalog import cuda as toolkits
from gpuready.catalog import indexes, releases
from gpuready.catalog import packages as catalogue
from gpuready.catalog import torch as torches
from gpuready.catalog.torch import TorchBuild
from gpuready.contracts.pin_conflicts import is_installed_by_image_alone
from gpuready.contracts.want import describe_want, value_meets_want
from gpuready.model import Contract, versions
from gpuready.model.facts import NOT_STATED
from gpuready.model.plan import ASSUMED_SYSTEM, PlanReason, RejectedChoice
from gpuready.plan import torch_packages
from gpuready.plan.limits import WHEEL_MACOS, find_macos_version
from gpuready.plan.platform import PlanPlatform, companion_version, visible_gpu_values
from gpuready.plan.search_space import SearchSpace, release_day


def list_reasons(
    space: SearchSpace, build: TorchBuild, python: str, rejected: Sequence[RejectedChoice]
) -> tuple[PlanReason, ...]:
    """Return the reasons for the winner, each with its source."""
    reasons = [_framework_reason(space, rejected), _torch_reason(space, build), *_index_reasons(space, build, python)]
    reasons += [*_gpu_reasons(space, build), *_driver_reasons(space, build), _python_reason(space, build, python)]
    return tuple(reasons)


def _framework_reason(space: SearchSpace, rejected: Sequence[RejectedChoice]) -> PlanReason:
    contract = space.contract
    if space.request.version or space.request.contract:
        return PlanReason("framework", f"{contract.name}: it was asked for", contract.origin)
    if rejected:
        return PlanReason(
            "framework", f"{contract.name}: the newest that fits; {rejected[0].choice} does not", rejected[0].cite
        )
    return PlanReason("framework", f"{contract.name}: the newest whose requirements are known", contract.origin)


def _torch_reason(space: SearchSpace, build: TorchBuild) -> PlanReason:
    request = space.request
    if request.torch and (not request.why or build.version in request.why):  # ``why`` may be about Python only
        says = request.why or f"{request.torch_source} asks for it"
        return PlanReason("torch", f"{build.version}: {says}", "uv" if request.why else request.torch_source)
    pins = [n for n in space.contract.requirements_for("package.torch") if n.level == "required" and n.want != "*"]
    active_pins = [n for n in pins if space.platform.condition_holds(n.when, build, "")]
    if not active_pins:
        newest = f"the newest of {space.until}" if space.until else "the newest there is"
        return PlanReason("torch", f"{build.version}: {newest}; its requirements name none", _first_source(build.cite))
    wants = " and ".join(dict.fromkeys(describe_want(n.want) for n in active_pins))
    exact = active_pins[0].want.startswith("==") and "|" not in active_pins[0].want
    what = "the one that" if exact else "the newest that fits of those that"
    return PlanReason(
        "torch", f"{build.version}: {what} {space.contract.framework} takes ({wants})", active_pins[0].cite
    )


def _index_reasons(space: SearchSpace, build: TorchBuild, python: str) -> list[PlanReason]:
    if build.variant == "cpu":
        why = "PyPI's: it has MPS in it" if space.platform.device == "mps" else "cpu: there is no GPU to use"
        return [PlanReason("index", why, space.platform.facts.fact("gpu.count").source)]
    rivals = [i for i, b in enumerate(space.builds) if b.version == build.version and b.pypi and b != build]
    if build.pypi or not rivals:
        word = "what PyPI serves" if build.pypi else f"from the PyTorch index {build.variant}"
        return [PlanReason("index", f"{build.variant}: {word}", _first_source(build.cite))]
    default = space.builds[rivals[0]]
    limit = space.first_failed_limit(rivals[0], [python, *space.pythons])
    if limit is not None:
        why = next(w for p in [python, *space.pythons] if (w := limit.fails(default, p)))
        return [PlanReason("index", f"{build.variant}, not PyPI's {default.variant}: {why}", limit.cite)]
    misfits = torch_packages.list_misfits(space.platform, space.contract, default, python)
    explanation = ", ".join(f"{name} has wheels for {what} alone" for name, what in misfits.items() if "." not in name)
    explanation = explanation or ", ".join(f"{name} {what} is recommended" for name, what in misfits.items())
    says = f"{build.variant}, not PyPI's {default.variant}: {explanation or 'its kernels come ready-made'}"
    return [PlanReason("index", says, _package_source(next(iter(misfits), "")))]


def _gpu_reasons(space: SearchSpace, build: TorchBuild) -> list[PlanReason]:
    reasons = []
    for capability in dict.fromkeys(map(str, visible_gpu_values(space.platform.facts, "gpu.capability"))):
        why = torches.covers_capability(build.arch, capability, build.cuda)[1]
        reasons.append(PlanReason("gpu", why, _first_source(build.cite)))
    return reasons


def _driver_reasons(space: SearchSpace, build: TorchBuild) -> list[PlanReason]:
    if not build.cuda:
        return []
    floor, cite = toolkits.minimum_driver(build.cuda)
    driver = space.platform.facts.value_if_known("driver.version")
    here = f"{driver} is here" if driver else "none is stated" if floor else ""
    return [PlanReason("driver", f"CUDA {build.cuda} starts on driver {floor} and newer; {here}", cite)]


def _python_reason(space: SearchSpace, build: TorchBuild, python: str) -> PlanReason:
    request = space.request
    if request.python and request.why:
        return PlanReason("python", f"{python}: {request.why}", "uv")
    if request.python:
        return PlanReason("python", f"{python}: {request.python_source} asks for it", request.python_source)
    if request.prefer and versions.major_minor(request.prefer) == versions.major_minor(python):
        return PlanReason("python", f"{python}: already installed, and compatible", "python.version")
    needs = [n for n in space.contract.requirements_for("python.version") if n.level == "required"]
    cite = needs[0].cite if needs else _first_source(build.cite)
    takes = f"; {space.contract.framework} needs {describe_want(needs[0].want)}" if needs else ""
    return PlanReason("python", f"{python}: newest well-supported Python{takes}", cite)


def why_not_preferred(space: SearchSpace, build: TorchBuild, winner: TorchBuild, python: str) -> str:
    """Return why a usable build was not chosen."""
    if build.version != winner.version:
        return f"also fits, but is older than {winner.version}"
    misfits = torch_packages.list_misfits(space.platform, space.contract, build, python)
    if misfits and len(misfits) > len(torch_packages.list_misfits(space.platform, space.contract, winner, python)):
        return "fits, but not with " + ", ".join(f"{name} ({what})" for name, what in misfits.items())
    return "also fits; the build of PyPI is preferred" if winner.pypi else "also fits, but is for an older CUDA"


# -- decided versions -----------------------------------------------------------------------------------


def list_decided_versions(platform: PlanPlatform, contract: Contract, build: TorchBuild, python: str) -> dict[str, str]:
    """Return every version that the choice fixes, without packages whose name on the index is another project."""
    own = exact_framework_version(contract)
    versions_found = {contract.distribution: own} if contract.distribution and own else {}
    versions_found["torch"] = build.version if build.pypi else f"{build.version}+{build.variant}"
    required_needs = [n for n in contract.requirements_for("package.*") if n.level == "required"]
    for name in ("torchvision", "torchaudio"):
        if any(n.key == f"package.{name}" and platform.condition_holds(n.when, build, python) for n in required_needs):
            versions_found |= {name: version} if (version := companion_version(build, name)) else {}
    for name, (version, when) in torch_packages.exact_pins(contract).items():
        if platform.condition_holds(when, build, python):
            versions_found.setdefault(name, version)
    return {name: version for name, version in versions_found.items() if not catalogue.find_lookalike(name)}


def exact_framework_version(contract: Contract) -> str:
    """Return the exact version of the framework: the newest that the contract covers and the catalogue knows."""
    if contract.version.count(".") >= 2:
        return contract.version
    known = releases.list_releases(contract.distribution or contract.framework)
    return next((v for v in reversed(known) if contracts.covers_version(contract.version, v)), "")


def why_unresolvable(contract: Contract) -> str:
    """Return why this contract cannot be resolved from release indexes; empty if it can."""
    if is_installed_by_image_alone(contract):
        return f"not resolved here: no resolver accepts the pins of {contract.name}, and its project installs it as an image"
    elsewhere = indexes.packages_with_own_index(contract.framework, contract.variant)
    if not elsewhere:
        return ""
    index_notes = [
        note for note in contract.notes if any(name in note.lower() for name in elsewhere) and "index" in note
    ]
    index_list = ", ".join(f"{name} comes from the index {index}" for name, index in elsewhere.items())
    return f"not resolved here: {index_notes[0] if index_notes else index_list}"


def list_plan_notes(space: SearchSpace, build: TorchBuild, python: str) -> tuple[str, ...]:
    """Return further notes on the winner."""
    says = space.contract.says
    plan_notes = [f"{space.contract.name}: {says}"] if says and not contracts.foreign_note(space.contract) else []
    if space.until:
        plan_notes.append(
            f"{space.contract.name} is of {space.contract.released}: planned with torch and packages of that time"
            if release_day(build) <= space.until
            else f"{space.contract.name} is of {space.contract.released}, before any torch for this machine: not tested together"
        )
    kernels = space.kernels.get((build.variant, build.version, python), ())
    released = {kernel.package for kernel in kernels if kernel.how == "release"}
    for name, what in torch_packages.list_misfits(space.platform, space.contract, build, python).items():
        if name in released:
            continue
        if "." not in name:
            plan_notes.append(f"the wheels of {name} are for {what} alone: beside this torch its kernels do not load")
        elif not space.contract.read_from:  # those of another release are not its own
            wanted = f"{name.removeprefix('package.')} {describe_want(what)}"
            plan_notes.append(f"{space.contract.framework} recommends {wanted}, which is not available here")
    plan_notes += _memory_notes(space)
    if space.platform.device == "cpu":
        plan_notes.append("planned for the CPU alone: there is no GPU that it could use")
    system = space.platform.facts.value_if_known("os.system")
    if (
        system in (None, "linux")
        and space.platform.facts.value_if_known("os.glibc") is None
        and "os.glibc" not in space.platform.facts
    ):
        plan_notes.append(ASSUMED_SYSTEM)
    if space.platform.facts.fact("driver.version").gap == NOT_STATED:
        starts = [reason.says.removesuffix("; none is stated") for reason in _driver_reasons(space, build)]
        plan_notes += [f"driver not given: {says} (--as driver=VERSION states one)" for says in starts]
    plan_notes += _macos_notes(space) if system == "darwin" else []
    return (*plan_notes, *list_unseen_facts(space.platform))


def _macos_notes(space: SearchSpace) -> list[str]:
    here = find_macos_version(space.platform.facts)
    if not here and "os.release" not in space.platform.facts:
        return [f"planned for macOS {WHEEL_MACOS} or newer, which torch's wheels need"]
    return []


def _memory_notes(space: SearchSpace) -> list[str]:
    """Return the memory floors for usual jobs that a GPU here does not reach."""
    sizes = [int(size * 16 / 15) for size in visible_gpu_values(space.platform.facts, "gpu.memory")]
    floors = [n for n in space.contract.requirements_for("gpu.memory") if n.level == "required" and not n.when]
    short = [n for n in floors if sizes and not value_meets_want(n.want, min(sizes))]
    return [f"{space.contract.framework} asks for GPUs of {describe_want(n.want)} ({n.cite})" for n in short]


def list_unseen_facts(platform: PlanPlatform) -> tuple[str, ...]:
    """Return the facts that could not be read and were ignored."""
    return tuple(f"not seen, and taken to be in order: {key} ({gap})" for key, gap in platform.unseen.items())


def _first_source(source: object) -> str:
    return str(source[0] if isinstance(source, (list, tuple)) and source else source)


def _package_source(name: str) -> str:
    return _first_source((catalogue.find_package(name) or {}).get("source", "")) if name else ""
