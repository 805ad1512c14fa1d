"""Choose torch, its CUDA build, Python and the framework's version, with reasons.

Every catalogued build with every Python is checked against the limits of the contract, the machine and the
user. The rest is ranked: the newest framework version, its newest torch, PyPI's build, packages of the same
CUDA, ready-made kernels, the Python that is already installed.
"""

from collections.abc import Sequence
from typing import Any

from gpuready import catalog
from gpuready.catalog.kernels import find_kernel
from gpuready.catalog.torch import TorchBuild
from gpuready.contracts.catalogued_release import OWN_CUDA
from gpuready.contracts.want import may_meet_want
from gpuready.model import Contract, Facts, Finding, versions
from gpuready.model.flag_words import as_words
from gpuready.model.plan import KernelPlan, Plan, PlanConflict, RejectedChoice
from gpuready.plan import reasons, search_space, steps, torch_packages
from gpuready.plan.deployment import PlanJudge, choose_own_image, machine_sizes
from gpuready.plan.kernels import plan_kernels
from gpuready.plan.limits import ASSUMED_GLIBC, find_macos_version
from gpuready.plan.platform import Limit, PlanRequest, machine_facts_only, visible_gpu_values
from gpuready.plan.search_space import Choice, SearchSpace, add_days, release_day

SETTLED_RELEASES = 10
"""Number of torch releases with wheels for a Python before it is used for new environments."""

MAX_JUDGED_CHOICES = 24
"""Number of choices that are judged by a check before a contract is rejected."""

OTHER_PLATFORMS = {"windows": "pc-windows-msvc", "darwin": "apple-darwin"}
"""Systems besides Linux that torch has wheels for, as the resolver calls them."""

DAYS_AFTER_TORCH = 30
"""Until when after a torch other packages are taken, where the old release of a framework comes with a newer torch."""

TORCH_FACTS = ("torch.", "package.", "cudnn.", "nccl.", "extension.")


def choose_plan(
    facts: Facts, contracts: Sequence[Contract], request: PlanRequest | None = None, judge: PlanJudge | None = None
) -> Plan:
    """Return the plan for the first contract (newest first) that has an open choice, or why there is none.

    ``judge`` returns what a check would hold against the environment of a plan: such a choice is not taken.
    """
    plan_request = request or PlanRequest()
    machine = machine_facts_only(facts)
    rejected: list[RejectedChoice] = []
    failed: list[tuple[SearchSpace, PlanConflict]] = []
    for contract in contracts:
        own_image = choose_own_image(machine, contract, plan_request, judge)
        if own_image is not None:
            return own_image.replace(options=plan_options(plan_request))
        space = SearchSpace(machine, contract, plan_request)
        found = _choose_from_space(space, rejected, judge)
        if isinstance(found, Plan):
            return found
        failed.append((space, found))
        rejected.append(RejectedChoice(contract.name, found.says, found.needs[0].cite if found.needs else ""))
    return _make_impossible_plan(failed, rejected)


def _choose_from_space(
    space: SearchSpace, rejected: Sequence[RejectedChoice], judge: PlanJudge | None
) -> Plan | PlanConflict:
    """Return the best plan that the judge accepts, or why there is none."""
    choices, first = space.open_choices(), None
    for _ in range(MAX_JUDGED_CHOICES):
        if not choices:
            break
        choice = best_choice(space, choices)
        objections = judge(_make_bare_plan(space, choice), space.contract) if judge else ()
        if not objections:
            return _make_plan(space, choice, rejected)
        first = first or search_space.describe_objections(objections)
        choices = _without_objected(choices, choice, objections)
    return first or space.smallest_conflict()


def _without_objected(choices: Sequence[Choice], taken: Choice, objections: Sequence[Finding]) -> list[Choice]:
    """Drop the choices against which an objection also speaks, by the facts that it was found in."""
    left = list(choices)
    for keys in ({fact.key for fact in one.found} for one in objections):
        by_torch, by_python = any(key.startswith(TORCH_FACTS) for key in keys), "python.version" in keys
        left = [
            choice for choice in left if (by_torch and choice[0] != taken[0]) or (by_python and choice[1] != taken[1])
        ]
    return left


def _make_impossible_plan(
    failed: Sequence[tuple[SearchSpace, PlanConflict]], rejected: Sequence[RejectedChoice]
) -> Plan:
    first = failed[0][0]
    return Plan(
        framework=first.contract.framework,
        version=first.contract.version,
        variant=first.contract.variant,
        verdict="impossible",
        machine=first.platform.facts.host,
        host=machine_sizes(first.platform.facts),
        conflicts=tuple(found for _, found in failed),
        fell=tuple(rejected[1:]),
        catalog=catalog.catalog_date(),
        notes=reasons.list_unseen_facts(first.platform),
        options=plan_options(first.request),
    )


def plan_options(request: PlanRequest) -> dict[str, Any]:
    """Return the command-line flags that a plan was made with."""
    options = {"on": request.on, "wants": request.wants, "contract": request.contract, "python": request.target_python}
    options |= {"version": request.version, "extras": ",".join(request.extras)}
    options |= {"as": "".join(as_words(request.what_if)[1:])}
    return {name: value for name, value in options.items() if value}


def needs_no_torch(contract: Contract) -> bool:
    return contract.says.endswith(OWN_CUDA)


def choose_without_torch(
    facts: Facts, contracts: Sequence[Contract], request: PlanRequest | None = None, judge: PlanJudge | None = None
) -> Plan:
    """Return the plan of a package by its driver, GPU and Python; whatever torch would be beside it is left out."""
    (contract,) = contracts
    plan = choose_plan(facts, contracts, request, judge)
    if plan.verdict != "plan":
        return plan
    name, notes = contract.distribution or contract.framework, [note for note in plan.notes if "torch" not in note]
    extras = {need.when.removeprefix("wants=") for need in contract.requirements_for("package.*")}
    cuda_extras = sorted(extra for extra in extras if "cuda" in extra)
    if cuda_extras and not plan.brackets:
        notes.append(f"CUDA comes with an extra: {', '.join(f'{name}[{one}]' for one in cuda_extras)}")
    if contract.requirements_for("toolkit.version"):
        notes.append("its CUDA libraries (cuBLAS) have to be on the machine: the install does not bring them")
    own = {"torch": "", "cuda": "", "index": "pypi", "packages": {name: contract.version}, "kernels": ()}
    own |= {"because": (), "fell": (), "notes": tuple(notes), "resolved": "its install step resolves the rest"}
    bare = plan.replace(**own)
    return bare.replace(steps=steps.make_plan_steps(bare, contract, facts))


# -- the ranking ----------------------------------------------------------------------------------------


def _make_bare_plan(space: SearchSpace, choice: Choice) -> Plan:
    """Make a plan of the versions and the compiled packages alone."""
    (build, python), contract = choice, space.contract
    return Plan(
        framework=contract.framework,
        version=contract.version,
        variant=contract.variant,
        verdict="plan",
        machine=space.platform.facts.host,
        host=machine_sizes(space.platform.facts),
        python=python,
        torch=_name_torch(space, build),
        cuda=build.cuda,
        packages=reasons.list_decided_versions(space.platform, contract, build, python),
        kernels=kernels_for_choice(space, build, python),
    )


def _name_torch(space: SearchSpace, build: TorchBuild) -> str:
    """``2.13.0+cu130``; a wheel for macOS has no such suffix: there is one build, and it has MPS in it."""
    is_mac = space.platform.facts.value_if_known("os.system") == "darwin"
    return build.version if is_mac else f"{build.version}+{build.variant}"


def _make_plan(space: SearchSpace, choice: Choice, rejected: Sequence[RejectedChoice]) -> Plan:
    build, python = choice
    contract, cpu = space.contract, space.platform.device == "cpu"
    plan = _make_bare_plan(space, choice).replace(
        index="pypi" if build.pypi else build.variant,
        platform=_resolver_platform(space, build),
        because=reasons.list_reasons(space, build, python, rejected),
        fell=(*rejected, *_list_rejected_builds(space, build, python)),
        resolved=reasons.why_unresolvable(contract),
        catalog=catalog.catalog_date(),
        notes=reasons.list_plan_notes(space, build, python),
        options=_macos_option(space)
        | ({"until": max(space.until, add_days(release_day(build), DAYS_AFTER_TORCH))} if space.until else {})
        | (
            _with_cpu_wanted(plan_options(space.request))
            if cpu
            else plan_options(space.request) | _capability_option(space)
        ),
    )
    return plan.replace(steps=steps.make_plan_steps(plan, contract, space.platform.facts))


def _capability_option(space: SearchSpace) -> dict[str, Any]:
    """Return the GPU capabilities, which the resolver's conditions read."""
    capabilities = tuple(dict.fromkeys(map(str, visible_gpu_values(space.platform.facts, "gpu.capability"))))
    return {"capability": capabilities} if capabilities else {}


def _macos_option(space: SearchSpace) -> dict[str, Any]:
    """Return the version of macOS, for whose wheels the resolver looks."""
    here = find_macos_version(space.platform.facts)
    return {"macos": here} if here else {}


def _with_cpu_wanted(options: dict[str, Any]) -> dict[str, Any]:
    wants = [word for word in str(options.get("wants", "")).split(",") if word]
    return options | {"wants": ",".join(dict.fromkeys([*wants, "cpu"]))}


def best_choice(space: SearchSpace, choices: Sequence[Choice]) -> Choice:
    """Return the highest-ranked choice: of the newest torch, for an old release of the newest of its time or the next one.

    A compiled package that is itself asked for comes with a torch that it has a wheel for, where there is one.
    """
    if find_kernel(space.contract.distribution):
        choices = [one for one in choices if _has_own_wheel(space, one)] or choices
    advice = [n.want for n in space.contract.requirements_for("package.torch") if n.level != "required" and not n.when]
    choices = [one for one in choices if all(may_meet_want(want, one[0].version) for want in advice)] or choices
    of_its_time = [build for build, _ in choices if release_day(build) <= space.until]
    newest = (of_its_time or [build for build, _ in choices[-1 if space.until else 0 :]])[0].version
    same = [choice for choice in choices if choice[0].version == newest]
    same = _keep_least(same, lambda c: len(torch_packages.list_misfits(space.platform, space.contract, *c)))
    same = _keep_least(same, lambda c: not c[0].pypi)
    same = _keep_least(same, lambda c: sum(k.how == "build" for k in kernels_for_choice(space, *c)))
    return min(same, key=lambda c: (_oldest_cuda_last(c[0].cuda), _rank_python(space, *c)))


def _has_own_wheel(space: SearchSpace, choice: Choice) -> bool:
    """Whether the compiled package that is asked for has a wheel of its release for a choice."""
    own = space.contract.distribution, space.contract.version
    return any(
        k.how in ("index", "release") and (k.package, k.version) == own for k in kernels_for_choice(space, *choice)
    )


def _keep_least(choices: list[Choice], weigh: Any) -> list[Choice]:
    weights = [weigh(choice) for choice in choices] if len(choices) > 1 else [0] * len(choices)
    return [choice for choice, weight in zip(choices, weights, strict=True) if weight == min(weights)]


def _oldest_cuda_last(cuda: str) -> tuple[int, int]:
    major, minor = versions.major_minor(cuda) if cuda else (0, 0)
    return -major, -minor


def _rank_python(space: SearchSpace, build: TorchBuild, python: str) -> tuple[bool, bool, bool, int]:
    """Prefer the installed Python, then one the contract advises, then the newest settled one."""
    here = bool(space.request.prefer) and versions.major_minor(space.request.prefer) == versions.major_minor(python)
    advice = [
        n.want for n in space.contract.requirements_for("python.version") if n.level == "recommended" and not n.when
    ]
    advised = all(may_meet_want(want, python) for want in advice)
    return (not here, not advised, not is_python_settled(space, build, python), -versions.major_minor(python)[1])


def is_python_settled(space: SearchSpace, build: TorchBuild, python: str) -> bool:
    """Whether torch has long had wheels for a Python, so that other packages have them too."""
    minor = "{}.{}".format(*versions.major_minor(python))
    releases = list(dict.fromkeys(one.version for one in space.builds))
    since = [one.version for one in space.builds if minor in one.python]
    return bool(since) and releases.index(since[-1]) - releases.index(build.version) >= SETTLED_RELEASES


def kernels_for_choice(space: SearchSpace, build: TorchBuild, python: str) -> tuple[KernelPlan, ...]:
    """Return how the requested compiled packages come into this environment."""
    key = build.variant, build.version, python
    if key not in space.kernels:
        wanted = torch_packages.wanted_kernels(space.platform, space.contract)
        space.kernels[key] = _plan_kernels_here(space, build, python, wanted) if not space.platform.cpu else ()
    return space.kernels[key]


def _plan_kernels_here(
    space: SearchSpace, build: TorchBuild, python: str, wanted: Sequence[str]
) -> tuple[KernelPlan, ...]:
    return plan_kernels(space.platform.facts_with_build(build), space.contract, build, python, wanted)


UV_GLIBC_MINORS = (17, 28, *range(31, 41))
"""Those of ``uv pip compile --python-platform``: x86_64-manylinux_2_17 to x86_64-manylinux_2_40."""

# -- the rest -------------------------------------------------------------------------------------------


def _resolver_platform(space: SearchSpace, build: TorchBuild) -> str:
    """Return the platform for the resolver."""
    system = space.platform.facts.value_if_known("os.system")
    if system in OTHER_PLATFORMS:
        return f"{'x86_64' if build.machine == 'x86_64' else 'aarch64'}-{OTHER_PLATFORMS[system]}"
    glibc = space.platform.facts.value_if_known("os.glibc") or ASSUMED_GLIBC
    return f"{build.machine}-manylinux_2_{newest_known_minor(str(glibc))}"


def newest_known_minor(glibc: str) -> int:
    """Return the newest glibc 2.x that uv has a platform for, up to the one that is there: 2.27 -> 17."""
    known = (minor for minor in UV_GLIBC_MINORS if versions.compare_versions(f"2.{minor}", glibc) <= 0)
    return int(max([17, *known]))


def _list_rejected_builds(space: SearchSpace, winner: TorchBuild, python: str) -> tuple[RejectedChoice, ...]:
    """List every other build with the first reason against it."""
    rejected = []
    pythons = [python, *(p for p in space.pythons if p != python)]
    for index, build in enumerate(space.builds):
        if build == winner:
            continue
        limit = space.first_failed_limit(index, pythons)
        name = f"torch {build.version}+{build.variant}"
        if limit is not None:
            rejected.append(RejectedChoice(name, _why_limit_fails(limit, build, pythons), str(limit.cite)))
        else:
            rejected.append(RejectedChoice(name, reasons.why_not_preferred(space, build, winner, python)))
    return tuple(rejected)


def _why_limit_fails(limit: Limit, build: TorchBuild, pythons: Sequence[str]) -> str:
    return next((why for p in pythons if (why := limit.fails(build, p))), limit.says)
