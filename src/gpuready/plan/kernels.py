"""Plan how each compiled package is installed: a wheel, a source build, compilation on first use, or not at all.

Pure: machine facts, a contract, one torch build and a Python in, KernelPlans out. Among the releases that the
contract accepts, one with a ready-made wheel comes before one that has to be compiled.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gpuready.catalog import kernels as catalogue
from gpuready.catalog.torch import TorchBuild
from gpuready.contracts import when as conditions
from gpuready.model import Contract, Fact, Facts, FixStep, UnknownFactError, versions
from gpuready.model.plan import KernelPlan
from gpuready.plan import source_build, wheels
from gpuready.plan.wheels import WheelTarget

KernelRow = Mapping[str, Any]


READY_MADE = ("index", "release")
PREFERENCE = (*READY_MADE, "jit", "build", "none")
"""Order of preference where a contract accepts several releases."""


def plan_kernels(
    facts: Facts, contract: Contract, build: TorchBuild, python: str, wanted: Sequence[str] = ()
) -> tuple[KernelPlan, ...]:
    """Plan every compiled package that the job or the contract asks for.

    ``wanted`` has words of ``--wants`` or package names; others are ignored.
    """
    short = ".".join(python.split(".")[:2])
    facts = facts.with_facts(*_planned_torch_facts(build, short.rstrip("t")))
    target = WheelTarget(facts, build, short, "TRUE" if catalogue.uses_cxx11_abi(build) else "FALSE")
    requested = _requested_packages(facts, contract, wanted)
    plans = (_plan_kernel(name, needs, target, contract, wanted) for name, needs in requested.items())
    return tuple(plan for plan in plans if plan.how == "release" or not _comes_with_framework(plan.package))


def must_be_compiled(name: str, version: str, build: TorchBuild, python: str) -> bool:
    """Return whether a release is known to have no ready-made wheel for this torch and Python: its setup then compiles it."""
    row, wheel_row = catalogue.find_kernel(name) or {}, catalogue.find_prebuilt_wheels(name, version)
    short = ".".join(python.split(".")[:2])
    target = WheelTarget(Facts(()), build, short, "TRUE" if catalogue.uses_cxx11_abi(build) else "FALSE")
    return row.get("comes") == "release" and bool(wheel_row and wheels.why_no_wheel_fits(row, wheel_row, target))


def _comes_with_framework(name: str) -> bool:
    """Return whether a package is installed with the framework, unless a wheel of its release page fits better."""
    return "beside" in (catalogue.find_kernel(name) or {})


def _planned_torch_facts(build: TorchBuild, python: str) -> list[Fact]:
    """Return the facts of the planned torch and Python that a contract's conditions read."""
    text = f"{build.version}+{build.variant}"
    stated = {"package.torch": text, "torch.version": text, "torch.cuda": build.cuda, "python.version": python}
    return [Fact(key, value, "plan", "stated") for key, value in stated.items()]


def _requested_packages(facts: Facts, contract: Contract, wanted: Sequence[str]) -> dict[str, list[str]]:
    """Return the requested packages, each with the contract's specifiers for it."""
    words = [*wanted, *(facts.value_if_known("job.wants") or ())] if "job.wants" in facts else list(wanted)
    if "job.wants" not in facts and wanted:
        facts = facts.with_facts(Fact("job.wants", tuple(wanted), "plan", "stated"))
    names = dict.fromkeys(name for word in words for name in catalogue.kernels_for_word(word))
    own = [n for n in catalogue.list_kernels() if (catalogue.find_kernel(n) or {}).get("own") == contract.framework]
    names |= dict.fromkeys(own)
    specifiers: dict[str, list[str]] = {}
    for need in contract.needs:
        name = need.key.removeprefix("package.")
        if name == need.key or catalogue.find_kernel(name) is None or not _condition_applies(need.when, facts):
            continue
        if need.level in ("required", "recommended"):
            names.setdefault(name)
        if need.want != "*":
            specifiers.setdefault(name, []).append(need.want)
    return {name: list(dict.fromkeys(specifiers.get(name, ()))) for name in names}


def _condition_applies(when: str, facts: Facts) -> bool:
    try:
        return conditions.condition_applies(when, facts)
    except UnknownFactError:
        # Defaults for what is not stated: Linux, and CUDA GPUs.
        usual = {"os.system": "linux", "platform.name": "cuda"}
        more = [Fact(k, v, "plan", "stated") for k, v in usual.items() if facts.value_if_known(k) is None]
        return conditions.certainly_applies(when, facts.with_facts(*more))


# -- one package ----------------------------------------------------------------------------------------


def _plan_kernel(
    name: str, needs: list[str], target: WheelTarget, contract: Contract, wanted: Sequence[str]
) -> KernelPlan:
    row = catalogue.find_kernel(name) or {}
    unsupported = _why_unsupported_here(row, target)
    known = [contract.version] if row.get("own") else catalogue.list_kernel_releases(name)
    allowed = [v for v in known if all(versions.satisfies_specifier(v, spec) for spec in needs)]
    shown_version = allowed[0] if allowed else _exact_pin_version(needs)
    if unsupported:
        return KernelPlan(name, shown_version, "none", f"{unsupported}; instead: {row['instead']}", row["source"])
    if not known or (needs and not allowed):
        return _plan_unlisted_release(row, needs, target)
    best: KernelPlan | None = None
    for version in allowed:
        candidate = _plan_release(row, version, target, wanted)
        if candidate.how in READY_MADE:
            return candidate
        if best is None or PREFERENCE.index(candidate.how) < PREFERENCE.index(best.how):
            best, target = candidate, target.replace(ready_only=candidate.how != "none")
    assert best is not None
    return best


def _why_unsupported_here(row: KernelRow, target: WheelTarget) -> str:
    """Return why no release works on this machine; empty if one may."""
    system = target.facts.value_if_known("os.system")
    if system not in (None, "linux"):
        return f"it is for Linux, and this is {system}"
    if target.build.machine not in row.get("machines", (target.build.machine,)):
        return f"it has no wheel for {target.build.machine}"
    for capability in source_build.list_gpu_capabilities(target.facts):
        if "min_cc" in row and versions.compare_versions(capability, row["min_cc"]) < 0:
            return f"it wants compute capability {row['min_cc']}, and a GPU here has {capability}"
        if "max_cc" in row and versions.compare_versions(capability, row["max_cc"]) > 0:
            return f"it serves GPUs up to compute capability {row['max_cc']}, and one here has {capability}"
    return ""


def _plan_unlisted_release(row: KernelRow, needs: list[str], target: WheelTarget) -> KernelPlan:
    """Plan a release that is not in the catalogue: no wheel name is known."""
    name, version = row["name"], _exact_pin_version(needs)
    why = f"the catalogue has no release of {name} that is {','.join(needs)}" if needs else "it has one source"
    if row["comes"] == "source":
        return _plan_source_build(row, {}, version, target, "no index has it" if "git" in row else why, needs)
    if row["comes"] == "jit":
        return _plan_jit_kernel(row, version, target, False, needs)
    if "toolkit_min" in row and row["comes"] == "release":
        return _plan_source_build(row, {}, version, target, f"{why}: whether a wheel is ready is not known", needs)
    return KernelPlan(name, version, "index", f"{why}: whether its wheel fits is not known", row["source"])


def _exact_pin_version(needs: list[str]) -> str:
    """Return the version of an ``==`` pin; empty if nothing is pinned."""
    exact = [spec[2:] for spec in needs if spec.startswith("==") and "*" not in spec and "," not in spec]
    return exact[0] if exact else ""


def _plan_release(row: KernelRow, version: str, target: WheelTarget, wanted: Sequence[str]) -> KernelPlan:
    unfit = _why_release_misfits(row, version, target)
    if unfit:
        return KernelPlan(
            row["name"], version, "none", f"{unfit}; instead: {row['instead']}", _release_source(row, version)
        )
    if row["comes"] == "jit":
        return _plan_jit_kernel(row, version, target, "build" in wanted)
    if row["comes"] == "index":
        return _plan_index_wheel(row, version, target, wanted)
    return _plan_project_wheel(row, version, target)


def _why_release_misfits(row: KernelRow, version: str, target: WheelTarget) -> str:
    """Return why a release does not fit this torch or Python; empty if it does or it is unknown."""
    name, release = row["name"], catalogue.find_kernel_release(row["name"], version)
    wanted = release.get("for_torch", release.get("torch"))
    if wanted is None and row.get("tied"):
        return f"for which torch {name} {version} is built is not known"
    if wanted and not versions.satisfies_specifier(target.build.version, wanted):
        return f"{name} {version} goes with torch {wanted}, and this is {target.build.version}"
    python = str(release.get("requires_python", "")).replace(" ", "")
    if python and not versions.satisfies_specifier(target.python.rstrip("t"), python):
        return f"{name} {version} wants Python {python}, and this is {target.python}"
    return ""


def _release_source(row: KernelRow, version: str) -> str:
    made = (
        catalogue.find_prebuilt_wheels(row["name"], version)
        or catalogue.find_kernel_release(row["name"], version)
        or row
    )
    return str(made["source"])


# -- ready-made wheels ----------------------------------------------------------------------------------


def _plan_project_wheel(row: KernelRow, version: str, target: WheelTarget) -> KernelPlan:
    """Plan a wheel of the project's release page, or a build if none fits."""
    wheel_row = catalogue.find_prebuilt_wheels(row["name"], version)
    lacking = wheels.why_no_wheel_fits(row, wheel_row, target)
    if wheel_row is None or lacking:
        return _plan_source_build(row, wheel_row or {}, version, target, lacking)
    wheel = wheels.prebuilt_wheel_name(row, wheel_row, version, target)
    address = row["address"].format(tag=wheel_row.get("tag", f"v{version}"), wheel=wheel)
    return KernelPlan(
        row["name"],
        version,
        "release",
        f"the project has a wheel for torch {target.torch_minor}, CUDA {target.cuda_major}, Python {target.python} and this ABI",
        wheel_row["source"],
        wheel,
        steps=(FixStep(f"install {row['name']} {version} ready-made", ("uv", "pip", "install", address), "ask"),),
    )


def _plan_index_wheel(row: KernelRow, version: str, target: WheelTarget, wanted: Sequence[str]) -> KernelPlan:
    """Plan a wheel of an index, or the fallback if it does not fit."""
    name, release = row["name"], catalogue.find_kernel_release(row["name"], version)
    wheel_row = catalogue.find_prebuilt_wheels(name, version)
    lacking = wheels.why_cuda_differs(release, target) or wheels.why_code_missing(
        wheels.list_wheel_archs(release, target), target, "the wheel of the index is there"
    )
    if "address" in row:
        return _plan_wheel_of_either(row, version, target, lacking)
    if not lacking and "version" in row:  # its wheels need one torch version, but the metadata does not say so
        lacking = wheels.why_no_wheel_fits(row, wheel_row, target)
    wheel = wheels.index_wheel_name(release, target)
    impossible = wheels.why_glibc_too_old(wheel, target)
    lacking = lacking or impossible
    if not lacking:
        step = FixStep(f"install {name} {version}", ("uv", "pip", "install", f"{name}=={version}"), "ask")
        explanation = f"the wheel of the index fits torch {target.build.version} and CUDA {target.cuda_major}"
        return KernelPlan(name, version, "index", explanation, _release_source(row, version), wheel, steps=(step,))
    requested = name in wanted or any(word in wanted for word in row.get("wants", ()))
    if row.get("imports_alone") and not requested and not impossible:
        explanation = f"{lacking}: its kernels will not work here; the job does not ask for them (--wants {name})"
        return KernelPlan(name, version, "index", explanation, _release_source(row, version), wheel)
    if "toolkit_min" in row:
        return _plan_source_build(row, {}, version, target, lacking)
    return KernelPlan(name, version, "none", f"{lacking}; instead: {row['instead']}", _release_source(row, version))


def _plan_wheel_of_either(row: KernelRow, version: str, target: WheelTarget, lacking: str) -> KernelPlan:
    """Plan the wheel of the release page where that of the index does not fit or nobody knows its CUDA."""
    wheel_row = catalogue.find_prebuilt_wheels(row["name"], version)
    known = lacking or not catalogue.find_kernel_release(row["name"], version)
    if known and not wheels.why_no_wheel_fits(row, wheel_row, target):
        return _plan_project_wheel(row, version, target)
    explanation = lacking or "the wheel of the index"
    return KernelPlan(row["name"], version, "none" if lacking else "index", explanation, _release_source(row, version))


# -- builds ---------------------------------------------------------------------------------------------


def _plan_source_build(
    row: KernelRow, release: KernelRow, version: str, target: WheelTarget, why: str, needs: Sequence[str] = ()
) -> KernelPlan:
    """Plan a build from source, or say why it is impossible."""
    name = row["name"]
    if target.ready_only:
        return KernelPlan(name, version, "none", why)
    recipe = source_build.make_build_recipe(target.facts, row, release, target.build)
    if recipe.impossible:
        explanation = "; ".join(part for part in (why, recipe.impossible, f"instead: {row['instead']}") if part)
        return KernelPlan(name, version, "none", explanation, _release_source(row, version))
    tries = _wheel_tried_by_setup(row, release, version, target)
    first = f"its setup.py first asks the release page for {tries}" if tries else ""
    explanation = "; ".join(part for part in (why, recipe.says, first, row.get("doubt", "")) if part)
    return KernelPlan(
        name,
        version,
        "build",
        explanation or "it is compiled against the torch that is there",
        row["source"],
        tries,
        recipe.toolkit,
        recipe.compiler,
        recipe.arch_list,
        recipe.max_jobs,
        recipe.seconds,  # type: ignore[arg-type]
        source_build.make_build_steps(target.facts, row, recipe, _pip_requirement(row, version, target, needs)),
    )


def _wheel_tried_by_setup(row: KernelRow, release: KernelRow, version: str, target: WheelTarget) -> str:
    """Return the wheel that its setup.py tries to download before compiling; empty if none."""
    pattern = row.get("tries") or ("" if release else row.get("wheel", ""))
    return wheels.format_wheel_name(pattern, version, target, target.cuda_major) if version else ""


def _pip_requirement(row: KernelRow, version: str, target: WheelTarget, needs: Sequence[str] = ()) -> str:
    if "git" in row:
        return f"{row['name']} @ {row['git']}"
    name = str(row.get("requirement", row["name"]))
    if versions.major_version(target.build.cuda) >= 13:
        name = str(row.get("requirement_cuda13", name))
    return f"{name}=={version}" if version else name + ",".join(needs)


def _plan_jit_kernel(
    row: KernelRow, version: str, target: WheelTarget, prebuild: bool, needs: Sequence[str] = ()
) -> KernelPlan:
    """Plan kernels that compile on first use, or ahead of time if a build is requested."""
    wanted = _pip_requirement(row, version, target, needs)
    install = FixStep(f"install {row['name']}", ("uv", "pip", "install", wanted), "ask")
    if "toolkit_min" not in row:
        return KernelPlan(row["name"], version, "jit", row["compiles"], row["source"], steps=(install,))
    if prebuild:
        early = dict(row) | {"environment": [*row.get("environment", ()), row["prebuild"]]}
        return _plan_source_build(early, {}, version, target, "a build is asked for", needs)
    recipe = source_build.make_build_recipe(target.facts, row, {}, target.build)
    if recipe.impossible:
        explanation = f"{recipe.impossible}; instead: {row['instead']}"
        return KernelPlan(row["name"], version, "none", explanation, row["source"])
    build_steps = source_build.make_build_steps(target.facts, row, recipe, wanted)
    return KernelPlan(
        row["name"],
        version,
        "jit",
        "; ".join(part for part in (row["compiles"], recipe.says) if part),
        row["source"],
        "",
        recipe.toolkit,
        recipe.compiler,
        recipe.arch_list,
        recipe.max_jobs,
        recipe.seconds,  # type: ignore[arg-type]
        (*build_steps[:-1], install),
    )
