"""When the first choice does not resolve: another patch, Python or torch, a torch from a local folder."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain

from gpuready import contracts
from gpuready.catalog.torch import list_torch_builds, list_torch_releases
from gpuready.model import versions
from gpuready.model.plan import LockedPackage, Plan, PlanConflict, RejectedChoice, UnresolvedCause

ChoosePlan = Callable[[str, str, str], Plan]  # (torch, python, reason) -> plan
ResolvePlan = Callable[[Plan], Plan]
FindWheels = Callable[[Sequence[LockedPackage], Plan], frozenset[str] | None]  # rows with a wheel for a plan
FindTorch = Callable[[Plan, str], str]  # the newest torch below a version that the asked indexes and folders have


MAX_OLDER_PYTHONS = 3
"""How many older Pythons are tried."""

MAX_NEWER_PYTHONS = 2
"""How many newer Pythons are tried, where a package has no wheel for the chosen one."""

MAX_SECONDS = 60.0
"""After how long no further choice is tried."""

MAX_OLDER_TORCHES = 3
"""How many older releases of torch are tried."""


TORCH_PARTS = re.compile(r"(torch(vision|audio|text|codec)?|(pytorch-)?triton(-rocm)?|(nvidia|cuda)-[\w-]+)( .*)?")
"""The names of torch, of its companions and of what it requires, which a mirror or a folder of wheels may lack."""


def resolve_or_fall_back(
    first: Plan,
    choose: ChoosePlan,
    resolve: ResolvePlan,
    free: Sequence[str],
    wheel_names: Sequence[str],
    find_wheels: FindWheels = lambda *_: None,
    find_torch: FindTorch = lambda *_: "",
) -> Plan:
    """Resolve a chosen plan; where that fails, the nearest one that resolves.

    ``free``: which of torch and python the user left open. ``wheel_names``: the torch wheels in local folders.
    ``find_wheels``: says which packages have a wheel for another Python, which is then taken before a build.
    ``find_torch``: the torch that the asked indexes have, where they lack the chosen one.
    """
    resolved = _resolve_nearest(first, choose, resolve, free, wheel_names, find_torch)
    built = [row for row in resolved.lock if row.built]
    if not built or "python" not in free:
        return resolved
    others = [word for word in free if word != "python"]
    why = f"with Python {resolved.python} packages would be built"
    for other, own_reason in _plans_with_other_python(first, resolved.python, choose, why, MAX_NEWER_PYTHONS):
        wheels = find_wheels(built, other) or ()
        lacking = [row for row in built if row.name in wheels]
        if not lacking:
            continue
        again = _resolve_nearest(other, choose, resolve, others, wheel_names, find_torch)
        if again.lock and sum(row.built for row in again.lock) < len(built):
            named = " and ".join(f"{row.name} {row.version}" for row in lacking)
            has = f"{named} {'has' if len(lacking) == 1 else 'have'} a wheel"
            why = f"{has} for Python {other.python}, and none for {resolved.python}"
            return _note_rejected(again, RejectedChoice(f"Python {resolved.python}", why), own_reason)
    return resolved


def _resolve_nearest(
    first: Plan,
    choose: ChoosePlan,
    resolve_plan: ResolvePlan,
    free: Sequence[str],
    wheel_names: Sequence[str],
    find_torch: FindTorch,
) -> Plan:
    pins: list[str] = []
    unread: list[
        Plan
    ] = []  # plans with such a torch, or another Python that may have a wheel, of which uv could not say

    def resolve(plan: Plan) -> Plan:
        done = resolve_plan(plan)
        pins.extend(_pinned_torches(done))
        is_other = _torch_release(done) in pins or (is_tag and plan.python != first.python)
        unread.extend([done] if done.verdict == "plan" and not done.lock and is_other else [])
        return done

    is_tag = False
    resolved = resolve(first)
    if resolved.lock or not free:
        return resolved
    is_tag = any(one.kind == "python-tag" for one in resolved.conflicts)
    if resolved.verdict == "impossible":
        why = resolved.conflicts[-1].says if resolved.conflicts else "uv finds no solution"
        is_apart = _is_about_other_packages(resolved)
        found = _resolve_neighbour(first, choose, resolve, free, why, pins, is_apart)
        return found or next(iter(unread), resolved)
    why, cause = resolved.why_unresolved, resolved.unresolved or UnresolvedCause("")
    if "python" in free and cause.kind == "no-wheel":
        pythons = _plans_with_older_python(first, choose)
        found = _first_resolved(pythons, resolve, RejectedChoice(f"Python {first.python}", _no_wheel_for(cause)))
        if found is not None:
            return found
    if "torch" in free:
        local = _plans_with_local_torch(first, choose, wheel_names)
        listed = _plans_with_listed_torch(first, choose, find_torch) if _lacks_torch(cause) else ()
        others = chain(local, listed, _plans_from_pypi(first, choose, pins))
        return _first_resolved(others, resolve, RejectedChoice(f"torch {first.torch}", why)) or resolved
    return resolved


def _is_about_other_packages(resolved: Plan) -> bool:
    """Whether a conflict is of exact versions alone, and of none of torch's parts: ``sglang==0.5.8 depends on transformers==4.57.1``."""
    conflict = resolved.conflicts[-1] if resolved.conflicts else PlanConflict("")
    names = {need.key.removeprefix("package.") for need in conflict.needs}
    if len(names) != 1 or sum(need.want.startswith("==") for need in conflict.needs) < 2:
        is_exact = " depends on " in conflict.says and not {*conflict.says} & {*"<>~!"}
        names = {*re.findall(r"(?<![\w.-])([\w.-]+)(?:\[[^\[\]]*\])?==", conflict.says)} if is_exact else set()
    return bool(names) and not any(map(TORCH_PARTS.fullmatch, names))


def _pinned_torches(resolved: Plan) -> list[str]:
    """Return the torch that a package pins exactly, by the needs of a conflict: ``==2.8.0`` of axolotl 0.14.0."""
    wants = [need.want for one in resolved.conflicts for need in one.needs if need.key == "package.torch"]
    found = [exact[1] for want in wants if (exact := re.fullmatch(r"==(\d+(?:\.\d+){1,3})", want))]
    return [pin for pin in dict.fromkeys(found) if pin != _torch_release(resolved)]


def _torch_release(plan: Plan) -> str:
    return plan.torch.partition("+")[0]


def _resolve_neighbour(
    first: Plan,
    choose: ChoosePlan,
    resolve: ResolvePlan,
    free: Sequence[str],
    why: str,
    pins: Sequence[str],
    is_about_others: bool,
) -> Plan | None:
    """Return the nearest plan that resolves: another patch of the framework, an older Python, an older torch.

    ``is_about_others``: two requirements on a package that is no part of torch contradict each other, on any Python and torch.
    """
    patches = [(first.replace(packages=others), "")] if (others := _without_patch(first)) else []
    found = _first_resolved(patches, resolve, RejectedChoice("the newest patch", why))
    if found is None and is_about_others:
        return None
    if found is None and "python" in free:
        pythons = _plans_with_older_python(first, choose)
        found = _first_resolved(pythons, resolve, RejectedChoice(f"Python {first.python}", why))
    if found is None and "torch" in free:
        torches = _plans_with_older_torch(first, choose, "" if "python" in free else first.python, pins)
        found = _first_resolved(torches, resolve, RejectedChoice(f"torch {first.torch}", why))
    return found


def _without_patch(plan: Plan) -> dict[str, str]:
    """Return the decided versions without the framework's patch, where its version names a line (5.22) only."""
    patches = {name for name, version in plan.packages.items() if version.startswith(f"{plan.version}.")}
    named = patches & {plan.framework, contracts.distribution_name(plan.framework)}
    return {name: version for name, version in plan.packages.items() if name not in named} if named else {}


def _plans_with_older_torch(
    first: Plan, choose: ChoosePlan, python: str, pins: Sequence[str]
) -> Iterator[tuple[Plan, str]]:
    """Yield plans with older releases of torch, newest first; one that a conflict has named meanwhile comes before the next."""
    release, why = _torch_release(first), f"with torch {first.torch} nothing resolves"
    left = [one for one in reversed(list_torch_releases()) if versions.compare_versions(one, release) < 0]
    tried = 0
    while left:
        named = next((one for one in pins if one in left), "")
        if not named and tried == MAX_OLDER_TORCHES:
            return
        left.remove(one := named or left[0])
        other = choose(one, python, why)
        if other.verdict == "plan":
            tried += not named
            yield other, why


def ask_index_once(
    resolve: ResolvePlan, has_local_torch: Callable[[Plan], bool], now: Callable[[], float]
) -> ResolvePlan:
    """Return a function that resolves plans: it asks an index of torch that did not answer no second time, and begins none after MAX_SECONDS."""
    unreachable: dict[str, Plan] = {}  # by index
    until: list[float] = []

    def resolve_plan(plan: Plan) -> Plan:
        if plan.index in unreachable and not has_local_torch(plan):
            known = unreachable[plan.index]
            return plan.replace(resolved=known.resolved, unresolved=known.unresolved)
        if until and now() > until[0]:
            return plan.replace(resolved=f"not tried: the choices before took {MAX_SECONDS:.0f} s")
        until.append(now() + MAX_SECONDS)
        done = resolve(plan)
        if done.unresolved == UnresolvedCause("index-unread", (plan.index,)):
            unreachable[plan.index] = done
        return done

    return resolve_plan


def _no_wheel_for(cause: UnresolvedCause) -> str:
    return f"{' and '.join(cause.names[:4]) or 'a package'}: no wheel"


def _lacks_torch(cause: UnresolvedCause) -> bool:
    return cause.kind == "missing" and any(map(TORCH_PARTS.fullmatch, cause.names))


def _first_resolved(others: Iterable[tuple[Plan, str]], resolve: ResolvePlan, rejected: RejectedChoice) -> Plan | None:
    for other, own_reason in others:
        resolved = resolve(other)
        if resolved.lock:
            return _note_rejected(resolved, rejected, own_reason)
    return None


def _note_rejected(resolved: Plan, rejected: RejectedChoice, own_reason: str) -> Plan:
    """Say what was rejected, and why; choices that fell by our own choice are not informative."""
    rest = [one for one in resolved.fell if one.why != own_reason]
    return resolved.replace(fell=(rejected, *rest), notes=(*resolved.notes, f"not {rejected.choice}: {rejected.why}"))


def _plans_with_older_python(first: Plan, choose: ChoosePlan) -> Iterator[tuple[Plan, str]]:
    return _plans_with_other_python(first, first.python, choose, f"with Python {first.python} nothing resolves")


def _plans_with_other_python(
    first: Plan, tried: str, choose: ChoosePlan, why: str, newer: int = 0
) -> Iterator[tuple[Plan, str]]:
    """Yield plans with the same torch and other Pythons than the one that was tried: older ones, then newer ones."""
    major, minor = versions.major_minor(tried)
    for step in (*range(-1, -MAX_OLDER_PYTHONS - 1, -1), *range(1, newer + 1)):
        other = choose(first.torch, f"{major}.{minor + step}", why)
        if other.verdict == "plan":
            yield other, why


def _plans_from_pypi(first: Plan, choose: ChoosePlan, pins: Sequence[str]) -> Iterator[tuple[Plan, str]]:
    """Yield plans with an older torch that PyPI has, where the first one's is on an index of PyTorch."""
    why = f"torch {first.torch} is on the index {first.index} alone"
    if first.index != "pypi":
        older = ((one, why) for one, _ in _plans_with_older_torch(first, choose, "", pins))
        yield from ((one, reason) for one, reason in older if one.index == "pypi")


def _plans_with_listed_torch(first: Plan, choose: ChoosePlan, find_torch: FindTorch) -> Iterator[tuple[Plan, str]]:
    """Yield plans with the torches that the asked indexes have, the newest first."""
    release, tried = _torch_release(first), 0
    while tried < MAX_OLDER_TORCHES and (found := find_torch(first, release)):
        release, why = found.partition("+")[0], f"the indexes that were asked have torch {found}, and no newer one"
        other = choose(_name_build(found, first), first.python, why)
        if other.verdict == "plan":
            tried += 1
            yield other, why


def _name_build(version: str, plan: Plan) -> str:
    """``2.11.0`` -> ``2.11.0+cu130``: a wheel without a suffix is the build that PyPI has for the processor of a plan."""
    builds = list_torch_builds(version, plan.platform.partition("-")[0]) if "+" not in version else ()
    return next((f"{version}+{build.variant}" for build in builds if build.pypi), version)


def _build_kind(torch: str) -> str:
    """``2.11.0+cu130`` -> ``cu``; cpu and rocm alike."""
    return torch.partition("+")[2].rstrip("0123456789.")


def _plans_with_local_torch(first: Plan, choose: ChoosePlan, wheel_names: Sequence[str]) -> Iterator[tuple[Plan, str]]:
    """Yield plans with a torch wheel from a folder, for that wheel's Python, newest first."""
    wheels = [name.removesuffix(".whl").replace("%2B", "+").split("-") for name in wheel_names]
    known = {(w[1], w[-3]) for w in wheels if len(w) >= 5 and w[0] == "torch" and w[-3].startswith("cp3")}
    for version, tag in sorted(known, key=lambda one: versions.parse_release(one[0]), reverse=True):
        python, build = f"3.{tag[3:]}", _name_build(version, first)
        if tag[3:].isdecimal() and _build_kind(build) == _build_kind(first.torch):
            same = versions.major_minor(first.python) == versions.major_minor(python)
            why = f"torch {version} for Python {python} lies in a folder of wheels here"
            other = choose(build, first.python if same else python, why)
            if other.verdict == "plan":
                yield other, why
