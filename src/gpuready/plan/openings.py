"""Find the cheapest changes that would make a plan possible, by trying each one."""

from __future__ import annotations

from gpuready import versions
from gpuready.catalog import cuda, gpus, load, systems
from gpuready.model import Fact
from gpuready.planned import Opening

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from gpuready.model import Contract, Facts
    from gpuready.plan.ground import Asked
    from gpuready.planned import Plan

    Choose = Callable[[Facts, Sequence[Contract], Asked], Plan]
    Change = tuple[str, str, Facts, list[Contract], Asked]  # kind, in words, and what to plan with

MOST = 3
"""Number of changes of one kind that are listed."""


def openings(
    choose: Choose, facts: Facts, asked_for: Sequence[Contract], others: Sequence[Contract], asked: Asked
) -> tuple[Opening, ...]:
    """Return single changes that make a plan possible, cheapest first; if none does, pairs of machine changes."""
    found = [*_tried(choose, _singles(facts, list(asked_for), list(others), asked))]
    if not found:
        found = [*_tried(choose, _pairs(facts, list(asked_for), asked))]
    return tuple(found)


def _tried(choose: Choose, changes: Iterator[Change]) -> Iterator[Opening]:
    told: dict[str, int] = {}
    for kind, change, facts, contracts, asked in changes:
        if told.get(kind, 0) >= (1 if kind in ("driver", "system") else MOST):
            continue
        plan = choose(facts, contracts, asked)
        if plan.verdict == "plan":
            told[kind] = told.get(kind, 0) + 1
            then = f"{plan.framework} {plan.version} with torch {plan.torch} and Python {plan.python}"
            yield Opening(kind, change, then, command(contracts[0], asked))


def _singles(facts: Facts, mine: list[Contract], others: list[Contract], asked: Asked) -> Iterator[Change]:
    yield from _flags(facts, mine, asked)
    for other in others:
        yield "framework", f"take {other.name}", facts, [other], asked
    for name, changed, flags in (*_systems(facts), *_drivers(facts), *_cards(facts)):
        yield name, flags[0], changed, mine, _with(asked, flags[1])


def _flags(facts: Facts, mine: list[Contract], asked: Asked) -> Iterator[Change]:
    """Yield flags of the user that could be dropped."""
    if "+" in asked.torch:
        version = asked.torch.partition("+")[0]
        free = _with(asked.but(torch=version), {"torch": version})
        yield "index", f"take another build of torch {version}", facts, mine, free
    if asked.torch:
        yield "flag", "leave out --torch", facts, mine, _without(asked.but(torch=""), "torch")
    if asked.python:
        free = _without(asked.but(python="", prefer=""), "python-version")
        yield "python", f"take another Python than {asked.python}", facts, mine, free
    wants = facts.known("job.wants")
    if wants:
        bare = facts.also(Fact("job.wants", (), "--wants", "stated"))
        yield "flag", f"do without {', '.join(map(str, wants))}", bare, mine, asked.but(wants="")


def _systems(facts: Facts) -> Iterator[tuple[str, Facts, tuple[str, dict[str, str]]]]:
    """Yield a Linux with a newer glibc, if the system is the obstacle."""
    row = systems.system("ubuntu") or {}
    release, glibc = list(row.get("glibc", {"22.04": "2.35"}).items())[-2]
    if facts.known("os.system") == "linux" and not _older_library(facts, glibc):
        return
    stated = {"os.system": "linux", "os.name": "ubuntu", "os.version": release, "os.glibc": glibc}
    changed = facts.also(*(Fact(key, value, "--os", "stated") for key, value in stated.items()))
    text = f"use Ubuntu {release} (glibc {glibc}) or a container that has it"
    yield "system", changed, (text, {"os": f"ubuntu{release}"})


def _older_library(facts: Facts, glibc: str) -> bool:
    fact = facts.fact("os.glibc")
    return not fact.gap and (fact.value is None or versions.compare(str(fact.value), glibc) < 0)


def _drivers(facts: Facts) -> Iterator[tuple[str, Facts, tuple[str, dict[str, str]]]]:
    """Yield other drivers, nearest first: newer ones, then older ones."""
    here = facts.known("driver.version")
    if here is None or not facts.known("gpu.count"):
        return
    floors = [cuda.driver_floor(release)[0] for release in cuda.releases()]
    known = [*cuda.drivers(), *(f for f in floors if f), *(str(b) for b in _branches(facts))]
    every = sorted(dict.fromkeys(known), key=versions.release)
    newer = [d for d in every if versions.compare(d, str(here)) > 0]
    older = [d for d in reversed(every) if versions.compare(d, str(here)) < 0]
    for driver in (*newer, *older):
        changed = facts.also(Fact("driver.version", driver, "--driver", "stated"))
        yield "driver", changed, (f"install driver {driver}", {"driver": driver})


def _branches(facts: Facts) -> Iterator[int]:
    for capability in facts.known("gpu.capability") or ():
        for bound in (cuda.driver_branch_min_for, cuda.driver_branch_max_for):
            branch, _ = bound(str(capability))
            if branch is not None:
                yield branch


def _cards(facts: Facts) -> Iterator[tuple[str, Facts, tuple[str, dict[str, str]]]]:
    """Yield other GPUs, one per capability, nearest capability first."""
    here = [str(c) for c in facts.known("gpu.capability") or ()]
    away = versions.minor(here[0]) if here else (9, 0)
    seen: set[str] = set()
    rows = sorted(load("gpus")["gpu"], key=lambda row: _distance(row["compute_capability"], away))
    for row in rows:
        capability = row["compute_capability"]
        if capability in seen or capability in here or row.get("host", "x86_64") != facts.known("os.arch"):
            continue
        seen.add(capability)
        yield (
            "gpu",
            _card(facts, row),
            (f"use a GPU such as {row['name']} ({capability})", {"on": _machine(facts, row)}),
        )


def _distance(capability: str, away: tuple[int, int]) -> tuple[int, int]:
    major, minor = versions.minor(capability)
    return abs(major * 10 + minor - away[0] * 10 - away[1]), -major


def _card(facts: Facts, row: dict[str, object]) -> Facts:
    count = facts.known("gpu.count") or 1
    each = {
        "gpu.name": row["name"],
        "gpu.capability": row["compute_capability"],
        "gpu.memory": int(float(str(row["vram_gib"])) * 2**30),
        "gpu.vendor": "nvidia",
    }
    found = [
        Fact(key, (value,) * count, f"catalogue: {row['name']}", "stated") for key, value in each.items()
    ]
    found += [
        Fact("gpu.count", count, "--on", "stated"),
        Fact("gpu.visible", tuple(range(count)), "--on", "stated"),
    ]
    return facts.also(*found, Fact("platform.name", "cuda", "--on", "stated"))


def _machine(facts: Facts, row: dict[str, Any]) -> str:
    count = facts.known("gpu.count") or 1
    return _short(row) + (f"x{count}" if count > 1 else "")


def _short(row: dict[str, Any]) -> str:
    named = [str(n) for key in ("default_for", "short", "aliases") for n in row.get(key) or ()]
    bare = str(row["name"]).lower().removeprefix("nvidia ").removeprefix("geforce ").removeprefix("tesla ")
    tried = sorted([*named, bare.replace(" ", ""), str(row["name"])], key=len)
    return next(n for n in tried if n.isascii() and gpus.find(n) is row)


def _pairs(facts: Facts, mine: list[Contract], asked: Asked) -> Iterator[Change]:
    """Yield a new system with a new driver, and a new GPU with a new driver or system."""
    for _, with_system, (text, flags) in _systems(facts):
        for _, changed, (more, also) in _drivers(with_system):
            yield "driver", f"{text}, and {more}", changed, mine, _with(asked, flags | also)
    for _, with_card, (text, flags) in _cards(facts):
        for _, changed, (more, also) in (*_drivers(with_card), *_systems(with_card)):
            yield "gpu", f"{text}, and {more}", changed, mine, _with(asked, flags | also)


def _with(asked: Asked, flags: dict[str, str]) -> Asked:
    what_if = {k: v for k, v in flags.items() if k != "on"}
    return asked.but(what_if=dict(asked.what_if) | what_if, on=flags.get("on", asked.on))


def _without(asked: Asked, flag: str) -> Asked:
    return asked.but(what_if={k: v for k, v in asked.what_if.items() if k != flag})


def command(contract: Contract, asked: Asked) -> tuple[str, ...]:
    """Return the command line that makes this plan."""
    variant = f":{contract.variant}" if contract.variant else ""
    named = (
        f"{contract.framework}=={contract.version}{variant}"
        if asked.version
        else contract.framework + variant
    )
    flags = {"on": asked.on, "wants": asked.wants, "contract": asked.contract, "python": asked.patient}
    words = [
        word
        for name, value in (flags | dict(asked.what_if)).items()
        if value
        for word in (f"--{name}", value)
    ]
    return ("gpuready", "plan", named, *words)
