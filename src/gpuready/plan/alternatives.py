"""Find the cheapest changes that would make a plan possible, by trying each one."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gpuready.catalog import cuda, gpus, load_catalog, systems
from gpuready.contracts import is_borrowed
from gpuready.model import Contract, Fact, Facts, versions
from gpuready.model.flag_words import as_words
from gpuready.model.plan import Plan, PlanAlternative
from gpuready.plan.deployment import find_newest_image, find_own_image
from gpuready.plan.platform import PlanRequest

ChooseFunction = Callable[[Facts, Sequence[Contract], PlanRequest], Plan]
TrialChange = tuple[str, str, Facts, list[Contract], PlanRequest]  # kind, in words, and what to plan with


MAX_PER_KIND = 3
"""Number of changes of one kind that are listed."""
ONE_OF_KIND = ("driver", "system", "release")
"""Kinds of which the nearest alone is listed."""


def find_alternatives(
    choose: ChooseFunction,
    facts: Facts,
    contracts_requested: Sequence[Contract],
    others: Sequence[Contract],
    request: PlanRequest,
) -> tuple[PlanAlternative, ...]:
    """Return single changes that make a plan possible, cheapest first; if none does, pairs of machine changes."""
    alternatives = [
        *_try_alternatives(choose, _single_changes(facts, list(contracts_requested), list(others), request))
    ]
    if not alternatives:
        alternatives = [*_try_alternatives(choose, _paired_changes(facts, list(contracts_requested), request))]
    compat = find_compat_way(choose, facts, contracts_requested, request)
    return (*_platform_images(facts, contracts_requested[0]), *compat, *alternatives)


def find_compat_way(
    choose: ChooseFunction, facts: Facts, contracts_requested: Sequence[Contract], request: PlanRequest
) -> tuple[PlanAlternative, ...]:
    """Return the cuda-compat package with which a plan fits data-centre GPUs on this older driver; nothing elsewhere."""
    driver, names = str(facts.value_if_known("driver.version") or ""), facts.value_if_known("gpu.name") or ()
    releases = cuda.list_cuda_releases() if driver else ()
    if not any(cuda.compat_package(release, driver, names) for release in releases):
        return ()
    loaded = Fact("driver.compat", "/usr/local/cuda/compat/libcuda.so.1", "cuda-compat", "stated")
    plan = choose(facts.with_facts(loaded), contracts_requested, request)
    package = cuda.compat_package(plan.cuda, driver, names) if plan.verdict == "plan" else ""
    change = f"keep driver {driver} and install {package}, with /usr/local/cuda/compat first in LD_LIBRARY_PATH"
    then = f"{plan.framework} {plan.version} with torch {plan.torch} and Python {plan.python}"
    return (PlanAlternative("compat", change, then),) if package else ()


def _platform_images(facts: Facts, contract: Contract) -> Iterator[PlanAlternative]:
    """Yield the framework's own image for this platform, where there is one, and none of the asked version."""
    row = find_newest_image(facts, contract)
    if row is not None and find_own_image(facts, contract) is None:
        change = f"use {contract.title or contract.framework}'s own image, {row['image']}"
        then = f"{contract.framework} and torch are in it"
        yield PlanAlternative("image", change, then, ("docker", "run", *row["flags"], row["image"]))


def _try_alternatives(choose: ChooseFunction, changes: Iterator[TrialChange]) -> Iterator[PlanAlternative]:
    counts_by_kind: dict[str, int] = {}
    for kind, change, facts, contracts, request in changes:
        if counts_by_kind.get(kind, 0) >= (1 if kind in ONE_OF_KIND else MAX_PER_KIND):
            continue
        plan = choose(facts, contracts, request)
        if plan.verdict == "plan":
            counts_by_kind[kind] = counts_by_kind.get(kind, 0) + 1
            stack = f"the image {plan.image}" if plan.is_image_alone else f"torch {plan.torch} and Python {plan.python}"
            then = f"{plan.framework} {plan.version} with {stack.removeprefix('torch  and ')}"
            yield PlanAlternative(kind, change, then, plan_command(contracts[0], request))


def _single_changes(
    facts: Facts, mine: list[Contract], others: list[Contract], request: PlanRequest
) -> Iterator[TrialChange]:
    yield from _flag_changes(facts, mine, request)
    for other in others:
        kind = "release" if is_borrowed(other) else "framework"
        yield kind, f"take {other.name}", facts, [other], request.replace(version=other.version)
    for name, changed, flags in (*_system_changes(facts), *_driver_changes(facts), *_gpu_changes(facts)):
        yield name, flags[0], changed, mine, _with_flags(request, flags[1])


def _flag_changes(facts: Facts, mine: list[Contract], request: PlanRequest) -> Iterator[TrialChange]:
    """Yield flags of the user that could be dropped."""
    if "+" in request.torch:
        version = request.torch.partition("+")[0]
        free = _with_flags(request.replace(torch=version), {"torch": version})
        yield "index", f"take another build of torch {version}", facts, mine, free
    if request.torch:
        yield "flag", "leave torch out", facts, mine, _without_flag(request.replace(torch=""), "torch")
    if request.python:
        free = _without_flag(request.replace(python="", prefer=""), "python-version")
        yield "python", f"take another Python than {request.python}", facts, mine, free
    wants = facts.value_if_known("job.wants")
    if wants:
        bare = facts.with_facts(Fact("job.wants", (), "--wants", "stated"))
        yield "flag", f"do without {', '.join(map(str, wants))}", bare, mine, request.replace(wants="")


def _system_changes(facts: Facts) -> Iterator[tuple[str, Facts, tuple[str, dict[str, str]]]]:
    """Yield a Linux with a newer glibc, if the system is the obstacle."""
    row = systems.find_system("ubuntu") or {}
    release, glibc = list(row.get("glibc", {"22.04": "2.35"}).items())[-2]
    if facts.value_if_known("os.system") == "linux" and not _has_older_glibc(facts, glibc):
        return
    stated = {"os.system": "linux", "os.name": "ubuntu", "os.version": release, "os.glibc": glibc}
    changed = facts.with_facts(*(Fact(key, value, "--as os", "stated") for key, value in stated.items()))
    text = f"use Ubuntu {release} (glibc {glibc}) or a container that has it"
    yield "system", changed, (text, {"os": f"ubuntu{release}"})


def _has_older_glibc(facts: Facts, glibc: str) -> bool:
    fact = facts.fact("os.glibc")
    return not fact.gap and (fact.value is None or versions.compare_versions(str(fact.value), glibc) < 0)


def _driver_changes(facts: Facts) -> Iterator[tuple[str, Facts, tuple[str, dict[str, str]]]]:
    """Yield other drivers, nearest first: newer ones, then older ones."""
    here = facts.value_if_known("driver.version")
    if here is None or not facts.value_if_known("gpu.count"):
        return
    floors = [cuda.minimum_driver(release)[0] for release in cuda.list_cuda_releases()]
    known = [*cuda.list_release_drivers(), *(f for f in floors if f), *(str(b) for b in _driver_branches(facts))]
    every = sorted(dict.fromkeys(known), key=versions.parse_release)
    newer = [d for d in every if versions.compare_versions(d, str(here)) > 0]
    older = [d for d in reversed(every) if versions.compare_versions(d, str(here)) < 0]
    for driver in (*newer, *older):
        changed = facts.with_facts(Fact("driver.version", driver, "--as driver", "stated"))
        yield "driver", changed, (f"install driver {driver}", {"driver": driver})


def _driver_branches(facts: Facts) -> Iterator[int]:
    for capability in facts.value_if_known("gpu.capability") or ():
        for bound in (cuda.first_driver_branch, cuda.last_driver_branch):
            branch, _ = bound(str(capability))
            if branch is not None:
                yield branch


def _gpu_changes(facts: Facts) -> Iterator[tuple[str, Facts, tuple[str, dict[str, str]]]]:
    """Yield other GPUs, one per capability, nearest capability first."""
    here = [str(c) for c in facts.value_if_known("gpu.capability") or ()]
    away = versions.major_minor(here[0]) if here else (9, 0)
    seen: set[str] = set()
    rows = sorted(load_catalog("gpus")["gpu"], key=lambda row: _capability_distance(row["compute_capability"], away))
    for row in rows:
        capability = row["compute_capability"]
        if capability in seen or capability in here or row.get("host", "x86_64") != facts.value_if_known("os.arch"):
            continue
        seen.add(capability)
        yield (
            "gpu",
            _facts_with_gpu(facts, row),
            (f"use a GPU such as {row['name']} ({capability})", {"on": _machine_word(facts, row)}),
        )


def _capability_distance(capability: str, away: tuple[int, int]) -> tuple[int, int]:
    major, minor = versions.major_minor(capability)
    return abs(major * 10 + minor - away[0] * 10 - away[1]), -major


def _facts_with_gpu(facts: Facts, row: dict[str, object]) -> Facts:
    count = facts.value_if_known("gpu.count") or 1
    each = {
        "gpu.name": row["name"],
        "gpu.capability": row["compute_capability"],
        "gpu.memory": int(float(str(row["vram_gib"])) * 2**30),
        "gpu.vendor": "nvidia",
    }
    facts_of_gpu = [Fact(key, (value,) * count, f"catalogue: {row['name']}", "stated") for key, value in each.items()]
    facts_of_gpu += [
        Fact("gpu.count", count, "--on", "stated"),
        Fact("gpu.visible", tuple(range(count)), "--on", "stated"),
    ]
    return facts.with_facts(*facts_of_gpu, Fact("platform.name", "cuda", "--on", "stated"))


def _machine_word(facts: Facts, row: dict[str, Any]) -> str:
    count = facts.value_if_known("gpu.count") or 1
    return _shortest_gpu_name(row) + (f"x{count}" if count > 1 else "")


def _shortest_gpu_name(row: dict[str, Any]) -> str:
    named = [str(n) for key in ("default_for", "short", "aliases") for n in row.get(key) or ()]
    bare = str(row["name"]).lower().removeprefix("nvidia ").removeprefix("geforce ").removeprefix("tesla ")
    tried = sorted([*named, bare.replace(" ", ""), str(row["name"])], key=len)
    return next(n for n in tried if n.isascii() and gpus.find_gpu(n) is row)


def _paired_changes(facts: Facts, mine: list[Contract], request: PlanRequest) -> Iterator[TrialChange]:
    """Yield a new system with a new driver, and a new GPU with a new driver or system."""
    for _, with_system, (text, flags) in _system_changes(facts):
        for _, changed, (more, also) in _driver_changes(with_system):
            yield "driver", f"{text}, and {more}", changed, mine, _with_flags(request, flags | also)
    for _, with_card, (text, flags) in _gpu_changes(facts):
        for _, changed, (more, also) in (*_driver_changes(with_card), *_system_changes(with_card)):
            yield "gpu", f"{text}, and {more}", changed, mine, _with_flags(request, flags | also)


def _with_flags(request: PlanRequest, flags: dict[str, str]) -> PlanRequest:
    what_if = {k: v for k, v in flags.items() if k != "on"}
    return request.replace(what_if=dict(request.what_if) | what_if, on=flags.get("on", request.on))


def _without_flag(request: PlanRequest, flag: str) -> PlanRequest:
    return request.replace(what_if={k: v for k, v in request.what_if.items() if k != flag})


def plan_command(contract: Contract, request: PlanRequest) -> tuple[str, ...]:
    """Return the command line that makes this plan."""
    variant = f":{contract.variant}" if contract.variant else ""
    extras = f"[{','.join(request.extras)}]" if request.extras else ""
    version = f"=={contract.version}" if request.version else ""
    framework_word = contract.framework + extras + version + variant
    flags = {"on": request.on, "wants": request.wants, "contract": request.contract, "python": request.target_python}
    words = [word for name, value in flags.items() if value for word in (f"--{name}", value)]
    return ("gpuready", "plan", framework_word, *words, *as_words(request.what_if))
