"""Plan how each compiled package is installed: a wheel, a source build, compilation on first use, or not at all.

Pure: machine facts, a contract, one torch build and a Python in, KernelPlans out. Among the releases that the
contract accepts, one with a ready-made wheel comes before one that has to be compiled.
"""

from __future__ import annotations

from gpuready import versions
from gpuready.catalog import kernels as catalogue
from gpuready.contracts import when as conditions
from gpuready.model import Fact, Step, Unknown
from gpuready.plan import building, wheels
from gpuready.plan.wheels import Target
from gpuready.planned import Kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from gpuready.catalog.torch import Build
    from gpuready.model import Contract, Facts

    Row = Mapping[str, Any]

READY = ("index", "release")
ORDER = (*READY, "jit", "build", "none")
"""Order of preference where a contract accepts several releases."""


def kernels(
    facts: Facts, contract: Contract, build: Build, python: str, wanted: Sequence[str] = ()
) -> tuple[Kernel, ...]:
    """Plan every compiled package that the job or the contract asks for.

    ``wanted`` has words of ``--wants`` or package names; others are ignored.
    """
    short = ".".join(python.split(".")[:2])
    facts = facts.also(*_of_torch(build, short.rstrip("t")))
    target = Target(facts, build, short, "TRUE" if catalogue.cxx11_abi(build) else "FALSE")
    asked = _asked(facts, contract, wanted)
    return tuple(_kernel(name, needs, target, contract, wanted) for name, needs in asked.items())


def _of_torch(build: Build, python: str) -> list[Fact]:
    """Return the facts of the planned torch and Python that a contract's conditions read."""
    text = f"{build.version}+{build.variant}"
    stated = {
        "package.torch": text,
        "torch.version": text,
        "torch.cuda": build.cuda,
        "python.version": python,
    }
    return [Fact(key, value, "plan", "stated") for key, value in stated.items()]


def _asked(facts: Facts, contract: Contract, wanted: Sequence[str]) -> dict[str, list[str]]:
    """Return the requested packages, each with the contract's specifiers for it."""
    words = [*wanted, *(facts.known("job.wants") or ())] if "job.wants" in facts else list(wanted)
    if "job.wants" not in facts and wanted:
        facts = facts.also(Fact("job.wants", tuple(wanted), "plan", "stated"))
    names = dict.fromkeys(name for word in words for name in catalogue.asked_by(word))
    own = [n for n in catalogue.names() if (catalogue.kernel(n) or {}).get("own") == contract.framework]
    names |= dict.fromkeys(own)
    specifiers: dict[str, list[str]] = {}
    for need in contract.needs:
        name = need.key.removeprefix("package.")
        if name == need.key or catalogue.kernel(name) is None or not _in_force(need.when, facts):
            continue
        if need.level in ("required", "recommended"):
            names.setdefault(name)
        if need.want != "*":
            specifiers.setdefault(name, []).append(need.want)
    return {name: list(dict.fromkeys(specifiers.get(name, ()))) for name in names}


def _in_force(when: str, facts: Facts) -> bool:
    try:
        return conditions.applies(when, facts)
    except Unknown:
        # Defaults for what is not stated: Linux, and CUDA GPUs.
        usual = {"os.system": "linux", "platform.name": "cuda"}
        more = [Fact(k, v, "plan", "stated") for k, v in usual.items() if facts.known(k) is None]
        try:
            return conditions.applies(when, facts.also(*more))
        except Unknown:
            return False


# -- one package ----------------------------------------------------------------------------------------


def _kernel(name: str, needs: list[str], on: Target, contract: Contract, wanted: Sequence[str]) -> Kernel:
    row = catalogue.kernel(name) or {}
    refused = _unserved(row, on)
    known = [contract.version] if row.get("own") else catalogue.releases(name)
    taken = [v for v in known if all(versions.satisfies(v, spec) for spec in needs)]
    shown = taken[0] if taken else _bare(needs)
    if refused:
        return Kernel(name, shown, "none", f"{refused}; instead: {row['instead']}", row["source"])
    if not known or (needs and not taken):
        return _unlisted(row, needs, on)
    best: Kernel | None = None
    for version in taken:
        made = _release(row, version, on, wanted)
        if made.how in READY:
            return made
        if best is None or ORDER.index(made.how) < ORDER.index(best.how):
            best, on = made, on.but(ready_only=made.how != "none")
    assert best is not None
    return best


def _unserved(row: Row, on: Target) -> str:
    """Return why no release works on this machine; empty if one may."""
    system = on.facts.known("os.system")
    if system not in (None, "linux"):
        return f"it is for Linux, and this is {system}"
    if on.build.machine not in row.get("machines", (on.build.machine,)):
        return f"it has no wheel for {on.build.machine}"
    for capability in building.capabilities(on.facts):
        if "min_cc" in row and versions.compare(capability, row["min_cc"]) < 0:
            return f"it wants compute capability {row['min_cc']}, and a GPU here has {capability}"
        if "max_cc" in row and versions.compare(capability, row["max_cc"]) > 0:
            return f"it serves GPUs up to compute capability {row['max_cc']}, and one here has {capability}"
    return ""


def _unlisted(row: Row, needs: list[str], on: Target) -> Kernel:
    """Plan a release that is not in the catalogue: no wheel name is known."""
    name, version = row["name"], _bare(needs)
    why = (
        f"the catalogue has no release of {name} that is {','.join(needs)}" if needs else "it has one source"
    )
    if row["comes"] == "source":
        return _built(row, {}, version, on, "no index has it" if "git" in row else why, needs)
    if row["comes"] == "jit":
        return _jit(row, version, on, False, needs)
    if "toolkit_min" in row and row["comes"] == "release":
        return _built(row, {}, version, on, f"{why}: whether a wheel is ready is not known", needs)
    return Kernel(name, version, "index", f"{why}: whether its wheel fits is not known", row["source"])


def _bare(needs: list[str]) -> str:
    """Return the version of an ``==`` pin; empty if nothing is pinned."""
    exact = [spec[2:] for spec in needs if spec.startswith("==") and "*" not in spec and "," not in spec]
    return exact[0] if exact else ""


def _release(row: Row, version: str, on: Target, wanted: Sequence[str]) -> Kernel:
    unfit = _unfit(row, version, on)
    if unfit:
        return Kernel(
            row["name"], version, "none", f"{unfit}; instead: {row['instead']}", _cite(row, version)
        )
    if row["comes"] == "jit":
        return _jit(row, version, on, "build" in wanted)
    if row["comes"] == "index":
        return _from_index(row, version, on, wanted)
    return _from_release(row, version, on)


def _unfit(row: Row, version: str, on: Target) -> str:
    """Return why a release does not fit this torch or Python; empty if it does or it is unknown."""
    name, release = row["name"], catalogue.release(row["name"], version)
    wanted = release.get("for_torch", release.get("torch"))
    if wanted is None and row.get("tied"):
        return f"for which torch {name} {version} is built is not known"
    if wanted and not versions.satisfies(on.build.version, wanted):
        return f"{name} {version} goes with torch {wanted}, and this is {on.build.version}"
    python = str(release.get("requires_python", "")).replace(" ", "")
    if python and not versions.satisfies(on.python.rstrip("t"), python):
        return f"{name} {version} wants Python {python}, and this is {on.python}"
    return ""


def _cite(row: Row, version: str) -> str:
    made = catalogue.ready_made(row["name"], version) or catalogue.release(row["name"], version) or row
    return str(made["source"])


# -- ready-made wheels ----------------------------------------------------------------------------------


def _from_release(row: Row, version: str, on: Target) -> Kernel:
    """Plan a wheel of the project's release page, or a build if none fits."""
    made = catalogue.ready_made(row["name"], version)
    lacking = wheels.lacking(row, made, on)
    if made is None or lacking:
        return _built(row, made or {}, version, on, lacking)
    wheel = wheels.named(row["wheel"], version, on, made["cuda"][on.cuda_major])
    address = row["address"].format(version=version, wheel=wheel)
    return Kernel(
        row["name"],
        version,
        "release",
        f"the project has a wheel for torch {on.minor}, CUDA {on.cuda_major}, Python {on.python} and this ABI",
        made["source"],
        wheel,
        steps=(
            Step(f"install {row['name']} {version} ready-made", ("uv", "pip", "install", address), "ask"),
        ),
    )


def _from_index(row: Row, version: str, on: Target, wanted: Sequence[str]) -> Kernel:
    """Plan a wheel of an index, or the fallback if it does not fit."""
    name, release = row["name"], catalogue.release(row["name"], version)
    made = catalogue.ready_made(name, version)
    lacking = wheels.unlinked(release, on) or wheels.not_in(
        wheels.code(release, on), on, "the wheel of the index is there"
    )
    if not lacking and "version" in row:  # its wheels need one torch version, but the metadata does not say so
        lacking = wheels.lacking(row, made, on)
    wheel = wheels.index_wheel(release, on)
    impossible = wheels.too_old(wheel, on)
    lacking = lacking or impossible
    if not lacking:
        step = Step(f"install {name} {version}", ("uv", "pip", "install", f"{name}=={version}"), "ask")
        says = f"the wheel of the index fits torch {on.build.version} and CUDA {on.cuda_major}"
        return Kernel(name, version, "index", says, _cite(row, version), wheel, steps=(step,))
    asked = name in wanted or any(word in wanted for word in row.get("wants", ()))
    if row.get("imports_alone") and not asked and not impossible:
        says = f"{lacking}: its kernels do not serve here, and the job does not ask for them (--wants {name})"
        return Kernel(name, version, "index", says, _cite(row, version), wheel)
    if "toolkit_min" in row:
        return _built(row, {}, version, on, lacking)
    return Kernel(name, version, "none", f"{lacking}; instead: {row['instead']}", _cite(row, version))


# -- builds ---------------------------------------------------------------------------------------------


def _built(row: Row, release: Row, version: str, on: Target, why: str, needs: Sequence[str] = ()) -> Kernel:
    """Plan a build from source, or say why it is impossible."""
    name = row["name"]
    if on.ready_only:
        return Kernel(name, version, "none", why)
    made = building.recipe(on.facts, row, release, on.build)
    if made.impossible:
        said = "; ".join(part for part in (why, made.impossible, f"instead: {row['instead']}") if part)
        return Kernel(name, version, "none", said, _cite(row, version))
    tries = _tried(row, release, version, on)
    first = f"its setup.py first asks the release page for {tries}" if tries else ""
    said = "; ".join(part for part in (why, made.says, first, row.get("doubt", "")) if part)
    return Kernel(
        name,
        version,
        "build",
        said or "it is compiled against the torch that is there",
        row["source"],
        tries,
        made.toolkit,
        made.compiler,
        made.arch_list,
        made.max_jobs,
        made.seconds,  # type: ignore[arg-type]
        building.steps(on.facts, row, made, _requirement(row, version, on, needs)),
    )


def _tried(row: Row, release: Row, version: str, on: Target) -> str:
    """Return the wheel that its setup.py tries to download before compiling; empty if none."""
    pattern = row.get("tries") or ("" if release else row.get("wheel", ""))
    return wheels.named(pattern, version, on, on.cuda_major) if version else ""


def _requirement(row: Row, version: str, on: Target, needs: Sequence[str] = ()) -> str:
    if "git" in row:
        return f"{row['name']} @ {row['git']}"
    name = str(row.get("requirement", row["name"]))
    if versions.major(on.build.cuda) >= 13:
        name = str(row.get("requirement_cuda13", name))
    return f"{name}=={version}" if version else name + ",".join(needs)


def _jit(row: Row, version: str, on: Target, prebuild: bool, needs: Sequence[str] = ()) -> Kernel:
    """Plan kernels that compile on first use, or ahead of time if a build is requested."""
    wanted = _requirement(row, version, on, needs)
    install = Step(f"install {row['name']}", ("uv", "pip", "install", wanted), "ask")
    if "toolkit_min" not in row:
        return Kernel(row["name"], version, "jit", row["compiles"], row["source"], steps=(install,))
    if prebuild:
        early = dict(row) | {"environment": [*row.get("environment", ()), row["prebuild"]]}
        return _built(early, {}, version, on, "a build is asked for", needs)
    made = building.recipe(on.facts, row, {}, on.build)
    if made.impossible:
        said = f"{made.impossible}; instead: {row['instead']}"
        return Kernel(row["name"], version, "none", said, row["source"])
    todo = building.steps(on.facts, row, made, wanted)
    return Kernel(
        row["name"],
        version,
        "jit",
        "; ".join(part for part in (row["compiles"], made.says) if part),
        row["source"],
        "",
        made.toolkit,
        made.compiler,
        made.arch_list,
        made.max_jobs,
        made.seconds,  # type: ignore[arg-type]
        (*todo[:-1], install),
    )
