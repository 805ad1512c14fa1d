"""When the first choice does not resolve: an older Python, a torch from a local folder, a newer glibc."""

from __future__ import annotations

from gpuready.model import versions
from gpuready.model.plan import RejectedChoice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gpuready.model.plan import Plan

    ChoosePlan = Callable[[str, str, str], Plan]  # (torch, python, reason) -> plan
    ResolvePlan = Callable[[Plan], Plan]

MAX_OLDER_PYTHONS = 3
"""How many older Pythons are tried."""


NEWER_GLIBCS = ("2.34", "2.35", "2.39")
"""The glibc of RHEL 9, Ubuntu 22.04 and Ubuntu 24.04."""


def resolve_or_fall_back(
    first: Plan, choose: ChoosePlan, resolve: ResolvePlan, free: Sequence[str], wheel_names: Sequence[str]
) -> Plan:
    """Resolve a chosen plan; where that fails, the nearest one that resolves.

    ``free``: which of torch and python the user left open. ``here``: the torch wheels in local folders.
    """
    resolved = resolve(first)
    if resolved.lock or not free:
        return resolved
    if resolved.verdict == "impossible":
        why = resolved.conflicts[-1].says if resolved.conflicts else "uv finds no solution"
        others = _plans_with_older_python(first, choose) if "python" in free else ()
        return _first_resolved(others, resolve, RejectedChoice(f"Python {first.python}", why)) or resolved
    if "torch" in free:
        why = resolved.resolved.removeprefix("not resolved here: ")
        return (
            _first_resolved(
                _plans_with_local_torch(first, choose, wheel_names),
                resolve,
                RejectedChoice(f"torch {first.torch}", why),
            )
            or resolved
        )
    return resolved


def resolve_for_newer_glibc(plan: Plan, resolve: ResolvePlan) -> Plan:
    """Resolve a plan for an unstated system; for a newer glibc where a package has no wheel for the old one.

    The glibc of such a plan is our own assumption, and must not be what makes it impossible.
    """
    resolved = resolve(plan)
    machine, _, assumed = plan.platform.partition("-manylinux_")
    for glibc in NEWER_GLIBCS:
        why = resolved.conflicts[-1].says if resolved.verdict == "impossible" and resolved.conflicts else ""
        if "platform tag" not in why or versions.compare_versions(glibc, assumed.replace("_", ".")) <= 0:
            continue
        other = resolve(plan.replace(platform=f"{machine}-manylinux_{glibc.replace('.', '_')}"))
        if other.lock:
            kept = [note for note in other.notes if not note.startswith("operating system not given")]
            note_text = f"operating system not given: planned for Linux with glibc {glibc} or newer: {why}"
            return other.replace(notes=(*kept, note_text))
    return resolved


def _first_resolved(others: Iterable[tuple[Plan, str]], resolve: ResolvePlan, rejected: RejectedChoice) -> Plan | None:
    for other, own_reason in others:
        resolved = resolve(other)
        if resolved.lock:
            rest = [
                one for one in resolved.fell if one.why != own_reason
            ]  # rejected by our own choice: not informative
            return resolved.replace(
                fell=(rejected, *rest), notes=(*resolved.notes, f"not {rejected.choice}: {rejected.why}")
            )
    return None


def _plans_with_older_python(first: Plan, choose: ChoosePlan) -> Iterator[tuple[Plan, str]]:
    """Yield plans with the same torch and older Pythons, newest first."""
    major, minor = versions.major_minor(first.python)
    for less in range(1, MAX_OLDER_PYTHONS + 1):
        python = f"{major}.{minor - less}"
        why = f"with Python {first.python} nothing resolves"
        other = choose(first.torch, python, why)
        if other.verdict == "plan":
            yield other, why


def _plans_with_local_torch(first: Plan, choose: ChoosePlan, wheel_names: Sequence[str]) -> Iterator[tuple[Plan, str]]:
    """Yield plans with a torch wheel from a folder, for that wheel's Python, newest first."""
    wheels = [name.removesuffix(".whl").replace("%2B", "+").split("-") for name in wheel_names]
    known = {(w[1], w[-3]) for w in wheels if len(w) >= 5 and w[0] == "torch" and w[-3].startswith("cp3")}
    for version, tag in sorted(known, key=lambda one: versions.parse_release(one[0]), reverse=True):
        python = f"3.{tag[3:]}"
        if tag[3:].isdecimal() and version.partition("+")[2] == first.torch.partition("+")[2]:
            same = versions.major_minor(first.python) == versions.major_minor(python)
            why = f"torch {version} for Python {python} lies in a folder of wheels here"
            other = choose(version, first.python if same else python, why)
            if other.verdict == "plan":
                yield other, why
