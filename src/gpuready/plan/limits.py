"""The limits on a choice of torch, CUDA and Python, each with its evidence.

A limit is a pure function of a choice and keeps the facts and needs it comes from, so that a set of limits
that nothing satisfies is also the explanation.
"""

from collections.abc import Iterator
from functools import cache

from gpuready.catalog import cuda as toolkits
from gpuready.catalog import gpus, images
from gpuready.catalog import torch as torches
from gpuready.catalog.gpus import find_products
from gpuready.catalog.proofs import proofs_for_capability
from gpuready.catalog.torch import TorchBuild
from gpuready.contracts import want as wanting
from gpuready.contracts.catalogued_release import METADATA_ONLY_NOTE
from gpuready.model import Contract, Facts, Requirement, versions
from gpuready.plan import torch_packages
from gpuready.plan.platform import (
    CHOSEN_FACTS,
    Limit,
    LimitCheck,
    PlanPlatform,
    PlanRequest,
    limit_axes,
    visible_gpu_values,
)
from gpuready.plan.torch_packages import has_cuda_wheel

NOT_CHOSEN = ("toolkit.", "compiler.", "disk.", "system.", "env.", "can.", "log.", "fit.", "fleet.", "package.")
"""Provided by the user, the resolver or a later command: no choice of torch depends on it."""

ASSUMED_GLIBC = "2.35"
"""The glibc of a system that nobody stated: that of Ubuntu 22.04."""

WHEEL_GLIBC, WHEEL_GLIBC_SINCE = "2.28", "2.7"
WHEEL_GLIBC_CITE = "torch 2.7.0 on PyPI: wheels for manylinux_2_28, none for musl"
WHEEL_MACOS, WHEEL_MACOS_SINCE = "14", "2.11"
WHEEL_MACOS_CITE = "PyTorch RELEASE.md: MPS from 2.11 on needs macOS 14; wheels from 2.12 on are for macosx_14_0"
FIRST_SERVER_JETSON = "11.0"
"""The capability of Thor, from which on Jetsons run what is built for servers."""
JETSON_CITE = "bitsandbytes-foundation/bitsandbytes pull request 1941: aarch64 wheels are aarch64-sbsa, not L4T"
NO_WHEELS = "torch has wheels for Linux, Windows and macOS alone"


def list_limits(platform: PlanPlatform, contract: Contract, request: PlanRequest) -> list[Limit]:
    """List every limit for one contract on one machine, the simplest first."""
    by_platform, by_contract = [*_platform_limits(platform, contract)], [*_contract_limits(platform, contract)]
    is_rocm = platform.device == "rocm"  # pins are those of builds for CUDA: they are not what is wrong
    limit_list = [*_user_limits(request), *(by_platform + by_contract if is_rocm else by_contract + by_platform)]
    limit_list += [*_python_tag_limits(), *_glibc_limits(platform.facts), *_macos_limits(platform.facts)]
    if platform.device == "rocm":
        limit_list += _rocm_limits(platform.facts)
    if not platform.cpu:
        limit_list += _jetson_limits(platform.facts)
        limit_list += [*_gpu_code_limits(platform.facts), *_driver_limits(platform.facts)]
    return [*limit_list, *torch_packages.package_limits(platform, contract)]


# -- the user -------------------------------------------------------------------------------------------


def _user_limits(request: PlanRequest) -> Iterator[Limit]:
    if request.torch:
        version, _, variant = request.torch.partition("+")
        fact = request.make_fact("package.torch", request.torch, request.torch_source)
        says = request.why or f"{request.torch_source} asks for torch {request.torch}"

        def differs_from_request(build: TorchBuild, python: str) -> str:
            same = versions.compare_versions(build.version, version) == 0 and variant in ("", build.variant)
            return "" if same else says

        yield Limit("torch-asked", says, differs_from_request, (fact,))
    if request.python:
        wanted = versions.major_minor(request.python)
        fact = request.make_fact("python.version", request.python, request.python_source)
        python_text = request.why or f"{request.python_source} asks for Python {request.python}"
        yield Limit(
            "python-asked",
            python_text,
            lambda b, p: "" if versions.major_minor(p) == wanted else python_text,
            (fact,),
            axes="python",
        )


# -- the contract ---------------------------------------------------------------------------------------


def _contract_limits(platform: PlanPlatform, contract: Contract) -> Iterator[Limit]:
    """Yield a limit for each required need on a chosen or an unchangeable machine fact."""
    for need in contract.needs:
        if need.level == "required" and _is_plan_limit(need, platform.cpu or _has_other_accelerator(platform.facts)):
            yield _need_limit(platform, contract, need)


def _has_other_accelerator(facts: Facts) -> bool:
    """Whether the machine computes on another platform than CUDA: needs on NVIDIA's GPUs say nothing of it."""
    return facts.value_if_known("platform.name") not in (None, "cuda", "cpu")


def _is_plan_limit(need: Requirement, no_nvidia: bool) -> bool:
    if need.key in CHOSEN_FACTS:
        return need.want != "*"
    if no_nvidia and need.key.startswith(("gpu.", "driver.")):
        return False
    if need.key == "gpu.memory":
        return "wants" in need.when  # a floor for jobs of usual size is only advice, as in a check
    return not need.key.startswith(NOT_CHOSEN)


def _need_limit(platform: PlanPlatform, contract: Contract, need: Requirement) -> Limit:
    label = _fact_label(need.key)
    wanted = wanting.describe_want(need.want)
    by_choice = need.key in CHOSEN_FACTS or need.key.startswith("torch.")

    def fails(build: TorchBuild, python: str) -> str:
        if not platform.condition_holds(need.when, build, python):
            return ""
        value = platform.fact_value(need.key, build, python)
        nominal = _nominal_memory(value) if need.key == "gpu.memory" and value is not platform.NOT_KNOWN else value
        if value is platform.NOT_KNOWN or wanting.may_meet_want(need.want, nominal):
            return ""
        return f"{label} {_format_fact_value(value).partition('+')[0]} is outside {wanted}"

    machine = "" if by_choice else _machine_value_text(platform.facts, need.key)
    facts = () if by_choice else (platform.facts.fact(need.key),)
    says = f"{contract.name} asks for {label} {wanted}{machine}"
    return Limit(f"need {need.key}", says, fails, facts, (need,), axes=limit_axes(need.key, need.when))


def _nominal_memory(sizes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the nominal memory of each GPU: ECC and the driver reserve up to a sixteenth."""
    return tuple(int(size * 16 / 15) for size in sizes)


def _fact_label(key: str) -> str:
    names = {"package.torch": "torch", "python.version": "Python", "torch.cuda": "CUDA in torch"}
    names |= {"gpu.capability": "compute capability", "gpu.count": "GPUs", "driver.version": "driver"}
    return names.get(key, key.removeprefix("package."))


def _format_fact_value(value: object) -> str:
    if isinstance(value, (tuple, list)):
        return " and ".join(dict.fromkeys(map(str, value))) or "none"
    return "absent" if value is None else str(value)


def _machine_value_text(facts: Facts, key: str) -> str:
    value = visible_gpu_values(facts, key) if key.startswith("gpu.") else facts.value_if_known(key)
    return f", and this machine has {_format_fact_value(value)}"


# -- the machine ----------------------------------------------------------------------------------------


def _platform_limits(platform: PlanPlatform, contract: Contract) -> Iterator[Limit]:
    """Yield limits where the catalogue has no torch for this system or device."""
    facts, named = platform.facts, " and ".join(contract.platforms)
    system, here = facts.value_if_known("os.system"), facts.value_if_known("platform.name")
    if system not in (None, "linux", "windows", "darwin"):
        why = f"this machine runs {system}, and {NO_WHEELS}"
        yield Limit("system", why, _always_fails(why), (facts.fact("os.system"),), (_system_need(),))
    why = ""
    if platform.device == "cpu" and is_for_gpus_alone(contract):
        why = f"{contract.name} is for GPUs, not for a CPU alone"
    elif platform.device == "rocm" and is_compiled_for_cuda(contract):
        name = contract.distribution or contract.framework
        why = f"{name} on the default index is for CUDA: for ROCm its project has images, and its sources"
    elif platform.device == "cuda" and system == "darwin" and here in (None, "cuda"):
        why = "macOS has no driver for NVIDIA GPUs"
    elif platform.device == "cuda" and contract.platforms and "cuda" not in contract.platforms:
        why = f"{contract.name} is for {named}, and the catalogue has no torch for that to choose from"
    elif platform.device == "cuda" and here == "cpu":
        why = f"{contract.name} is for {named}, and this machine has only a CPU"
        if contract.says == METADATA_ONLY_NOTE:  # its platforms are a guess
            why = f"this machine has only a CPU: --wants cpu plans {contract.name} for it"
    elif platform.device == "cuda" and here not in (None, "cuda"):
        lacks = "the catalogue has no torch for that to choose from"
        why = f"this machine computes on {here}, and {lacks if here in contract.platforms else f'{contract.name} is for {named}'}"
    if why:
        cite = f"{contract.name}, platforms: {', '.join(contract.platforms)}"
        need = Requirement("platform.name", "|".join(contract.platforms), cite=cite)
        yield Limit("platform", why, _always_fails(why), (facts.fact("platform.name"),), (need,))


def is_for_gpus_alone(contract: Contract) -> bool:
    """Whether a framework is for GPUs and no CPU: by its contract, or because its own command starts on a GPU alone.

    Metadata names neither: there a wheel compiled for CUDA tells.
    """
    entries = proofs_for_capability("entry-point", contract.framework)
    if entries and all(entry.device == "cuda" for entry in entries):
        return True
    if contract.says == METADATA_ONLY_NOTE:
        return has_cuda_wheel(contract)
    return is_compiled_for_cuda(contract) or (bool(contract.platforms) and {*contract.platforms} <= {"cuda", "rocm"})


def is_compiled_for_cuda(contract: Contract) -> bool:
    """Whether what the default index has of a framework is for CUDA: its own wheels, or those of its kernels."""
    return has_cuda_wheel(contract) or images.has_platform_image(contract.framework, "rocm")


def _always_fails(why: str) -> LimitCheck:
    return lambda build, python: why


def no_build_limit(facts: Facts, why: str) -> Limit:
    """Return the limit of a machine that torch has no build for."""
    found = tuple(facts.fact(key) for key in ("os.system", "os.arch", "platform.name") if key in facts)
    return Limit("builds", why, _always_fails(why), found, (_system_need(),))


def _system_need() -> Requirement:
    return Requirement("os.system", "linux|windows|darwin", cite=NO_WHEELS)


def _python_tag_limits() -> Iterator[Limit]:
    def fails(build: TorchBuild, python: str) -> str:
        minor = "{}.{}".format(*versions.major_minor(python))
        return "" if minor in build.python else f"torch {build.version} has no wheel for Python {minor}"

    need = Requirement("python.version", "one that the wheel of torch is built for", cite="wheel tags of torch")
    yield Limit("python tags", "torch comes as a wheel for certain Pythons", fails, (), (need,), axes="both")


def _glibc_limits(facts: Facts) -> Iterator[Limit]:
    fact = facts.fact("os.glibc")
    if fact.gap or facts.value_if_known("os.system") not in (None, "linux"):
        return
    glibc = fact.value
    if glibc is not None and versions.compare_versions(str(glibc), WHEEL_GLIBC) >= 0:
        return

    def fails(build: TorchBuild, python: str) -> str:
        if glibc is None:
            return "torch has no wheels for a system without glibc"
        late = build.version.startswith("2.6") and (build.variant == "cu126" or build.machine == "aarch64")
        if versions.compare_versions(build.version, WHEEL_GLIBC_SINCE) < 0 and not late:
            return ""
        return f"its wheel is built for glibc {WHEEL_GLIBC}, and {glibc} is here"

    need = Requirement("os.glibc", f">={WHEEL_GLIBC}", cite=WHEEL_GLIBC_CITE)
    says = f"torch from {WHEEL_GLIBC_SINCE} on is built for glibc {WHEEL_GLIBC}, and this machine has {glibc or 'none'}"
    yield Limit("glibc", says, fails, (fact,), (need,), WHEEL_GLIBC_CITE)


def _macos_limits(facts: Facts) -> Iterator[Limit]:
    here = find_macos_version(facts)
    if not here or versions.compare_versions(here, WHEEL_MACOS) >= 0:
        return

    def fails(build: TorchBuild, python: str) -> str:
        early = versions.compare_versions(build.version, WHEEL_MACOS_SINCE) < 0
        return "" if early else f"it needs macOS {WHEEL_MACOS}, and {here} is here"

    found = facts.fact("os.version" if facts.value_if_known("os.version") else "os.release")
    need = Requirement("os.version", f">={WHEEL_MACOS}", cite=WHEEL_MACOS_CITE)
    says = f"torch from {WHEEL_MACOS_SINCE} on needs macOS {WHEEL_MACOS}, and this machine has {here}"
    yield Limit("macos", says, fails, (found,), (need,), WHEEL_MACOS_CITE)


def find_macos_version(facts: Facts) -> str:
    """Return the version of macOS, stated or by its kernel: Darwin 22 is macOS 13, Darwin 25 is macOS 26; empty if unknown."""
    if facts.value_if_known("os.system") != "darwin":
        return ""
    if stated := str(facts.value_if_known("os.version") or ""):
        return stated if versions.is_version(stated) else ""
    major = str(facts.value_if_known("os.release") or "").partition(".")[0]
    if not major.isdecimal() or int(major) < 20:
        return ""
    return str(int(major) - 9 if int(major) < 25 else int(major) + 1)


def _rocm_limits(facts: Facts) -> Iterator[Limit]:
    """Require a ROCm that knows the accelerators, where the catalogue has the first one that does."""
    for row in find_products(facts.value_if_known("accelerator.name") or ()):
        first = str(row.get("first_rocm", ""))
        says = f"{row['name']} needs ROCm {first} or newer"

        def fails(build: TorchBuild, python: str, first: str = first, says: str = says) -> str:
            here = build.variant.removeprefix("rocm")
            return says if first and versions.compare_versions(here, first) < 0 else ""

        if first:
            need = Requirement("torch.hip", f">={first}", cite=str(row["source"]))
            yield Limit("rocm", says, fails, (facts.fact("accelerator.name"),), (need,))


def _jetson_limits(facts: Facts) -> Iterator[Limit]:
    """Rule out every wheel of an index on Jetsons before Thor, whose system (L4T) is not the one that wheels for aarch64 are built for."""
    for name in dict.fromkeys(facts.value_if_known("gpu.name") or ()):
        row = gpus.find_gpu(str(name)) or {}
        if (
            row.get("market") != "jetson"
            or versions.compare_versions(row["compute_capability"], FIRST_SERVER_JETSON) >= 0
        ):
            continue
        says = f"{row['name']}: wheels for aarch64 on PyPI and on PyTorch's index are for servers (sbsa), not for JetPack (L4T)"
        says += ": take those of the Jetson AI Lab, or NVIDIA's containers for Jetson"
        need = Requirement("os.name", "a server's Linux, or wheels for L4T", cite=JETSON_CITE)
        yield Limit("jetson", says, _always_fails(says), (facts.fact("gpu.name"),), (need,), JETSON_CITE)


def _gpu_code_limits(facts: Facts) -> Iterator[Limit]:
    """Require code in the wheel for every visible GPU."""
    capabilities = dict.fromkeys(map(str, visible_gpu_values(facts, "gpu.capability")))
    names = facts.value_if_known("gpu.name") or ()
    cite = str(toolkits.find_cuda_rule("cubin_compat")["source"])
    for capability in capabilities:
        own = next(
            (n for n, c in zip(names, facts.value_if_known("gpu.capability") or (), strict=False) if c == capability),
            "",
        )
        what = f"{own} ({capability})" if own else capability

        def fails(build: TorchBuild, python: str, capability: str = capability, what: str = what) -> str:
            if _build_covers_gpu(build.arch, capability, build.cuda):
                return ""
            return f"it has no code for {what}: {' '.join(build.arch) or 'nothing is listed'}"

        arch = "sm_" + capability.replace(".", "")
        says = f"torch needs code for {what}, {arch} or what runs there"
        facts_ = tuple(facts.fact(key) for key in ("gpu.name", "gpu.capability") if key in facts)
        yield Limit(f"code for {capability}", says, fails, facts_, (Requirement("torch.arch", arch, cite=cite),), cite)


@cache
def _build_covers_gpu(arch: tuple[str, ...], capability: str, cuda: str) -> bool:
    return torches.covers_capability(arch, capability, cuda)[0]


def _driver_limits(facts: Facts) -> Iterator[Limit]:
    driver = facts.value_if_known("driver.version")
    if driver is None or not facts.value_if_known("gpu.count"):
        return
    fact, compat = facts.fact("driver.version"), bool(facts.value_if_known("driver.compat"))
    system = facts.value_if_known("os.system")

    def fails(build: TorchBuild, python: str) -> str:
        if toolkits.driver_runs_cuda(str(driver), build.cuda, compat=compat, system=system) is not False:
            return ""
        floor = toolkits.minimum_driver(build.cuda, system)[0]
        return f"CUDA {build.cuda} needs driver {floor}, and {driver} is here"

    cuda = toolkits.newest_cuda_for_driver(str(driver)) or "none that the catalogue knows"
    floor = next(
        (
            f
            for f, _ in map(toolkits.minimum_driver, toolkits.list_cuda_releases())
            if f and (versions.compare_versions(f, str(driver)) > 0)
        ),
        "",
    )
    need = Requirement("driver.version", f">={floor}" if floor else "*", cite=toolkits.minimum_driver("13.0")[1])
    says = f"driver {driver} starts programs of CUDA {cuda} and of other minors of its major, no newer ones"
    yield Limit("driver", says, fails, (fact,), (need,), need.cite)
