"""When the first choice does not resolve: an older Python, a torch from a local folder, a newer glibc."""

from __future__ import annotations

from gpuready import versions
from gpuready.planned import Fallen

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gpuready.planned import Plan

    Choose = Callable[[str, str, str], Plan]  # (torch, python, reason) -> plan
    Resolve = Callable[[Plan], Plan]

OLDER = 3
"""How many older Pythons are tried."""


NEWER = ("2.34", "2.35", "2.39")
"""The glibc of RHEL 9, Ubuntu 22.04 and Ubuntu 24.04."""


def settled(first: Plan, choose: Choose, resolve: Resolve, free: Sequence[str], here: Sequence[str]) -> Plan:
    """Resolve a chosen plan; where that fails, the nearest one that resolves.

    ``free``: which of torch and python the user left open. ``here``: the torch wheels in local folders.
    """
    found = resolve(first)
    if found.lock or not free:
        return found
    if found.verdict == "impossible":
        why = found.conflicts[-1].says if found.conflicts else "uv finds no solution"
        others = _older(first, choose) if "python" in free else ()
        return _first(others, resolve, Fallen(f"Python {first.python}", why)) or found
    if "torch" in free:
        why = found.resolved.removeprefix("not resolved here: ")
        return _first(_local(first, choose, here), resolve, Fallen(f"torch {first.torch}", why)) or found
    return found


def on_newer(plan: Plan, resolve: Resolve) -> Plan:
    """Resolve a plan for an unstated system; for a newer glibc where a package has no wheel for the old one.

    The glibc of such a plan is our own assumption, and must not be what makes it impossible.
    """
    found = resolve(plan)
    machine, _, assumed = plan.platform.partition("-manylinux_")
    for glibc in NEWER:
        why = found.conflicts[-1].says if found.verdict == "impossible" and found.conflicts else ""
        if "platform tag" not in why or versions.compare(glibc, assumed.replace("_", ".")) <= 0:
            continue
        other = resolve(plan.but(platform=f"{machine}-manylinux_{glibc.replace('.', '_')}"))
        if other.lock:
            kept = [note for note in other.notes if not note.startswith("the system is not stated")]
            said = f"the system is not stated: planned for Linux with glibc {glibc} or newer: {why}"
            return other.but(notes=(*kept, said))
    return found


def _first(others: Iterable[tuple[Plan, str]], resolve: Resolve, fell: Fallen) -> Plan | None:
    for other, because in others:
        found = resolve(other)
        if found.lock:
            rest = [
                one for one in found.fell if one.why != because
            ]  # rejected by our own choice: not informative
            return found.but(fell=(fell, *rest), notes=(*found.notes, f"not {fell.choice}: {fell.why}"))
    return None


def _older(first: Plan, choose: Choose) -> Iterator[tuple[Plan, str]]:
    """Yield plans with the same torch and older Pythons, newest first."""
    major, minor = versions.minor(first.python)
    for less in range(1, OLDER + 1):
        python = f"{major}.{minor - less}"
        why = f"with Python {first.python} nothing resolves"
        other = choose(first.torch, python, why)
        if other.verdict == "plan":
            yield other, why


def _local(first: Plan, choose: Choose, here: Sequence[str]) -> Iterator[tuple[Plan, str]]:
    """Yield plans with a torch wheel from a folder, for that wheel's Python, newest first."""
    wheels = [name.removesuffix(".whl").replace("%2B", "+").split("-") for name in here]
    known = {(w[1], w[-3]) for w in wheels if len(w) >= 5 and w[0] == "torch" and w[-3].startswith("cp3")}
    for version, tag in sorted(known, key=lambda one: versions.release(one[0]), reverse=True):
        python = f"3.{tag[3:]}"
        if tag[3:].isdecimal() and version.partition("+")[2] == first.torch.partition("+")[2]:
            same = versions.minor(first.python) == versions.minor(python)
            why = f"torch {version} for Python {python} lies in a folder of wheels here"
            other = choose(version, first.python if same else python, why)
            if other.verdict == "plan":
                yield other, why
