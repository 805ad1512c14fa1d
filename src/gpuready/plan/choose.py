"""Choose torch, its CUDA build, Python and the framework's version, with reasons.

Every catalogued build with every Python is checked against the limits of the contract, the machine and the
user. The rest is ranked: the newest framework version, its newest torch, PyPI's build, packages of the same
CUDA, ready-made kernels, the Python that is already installed.
"""

from __future__ import annotations

from gpuready import catalog, versions
from gpuready.plan import conflict, explain, extensions, steps
from gpuready.plan.candidates import PYTHONS, domain
from gpuready.plan.ground import Asked, Ground, bare, cpu_alone, shown
from gpuready.plan.limits import limits
from gpuready.planned import Fallen, Plan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from gpuready.catalog.torch import Build
    from gpuready.model import Contract, Facts
    from gpuready.plan.ground import Limit
    from gpuready.planned import Conflict, Kernel

    Choice = tuple[Build, str]

SETTLED = 10
"""Number of torch releases with wheels for a Python before it is used for new environments."""


class Field:
    """All choices of one contract on one machine, and the limits that each one fails."""

    def __init__(self, facts: Facts, contract: Contract, asked: Asked):
        here = facts.known("platform.name")
        cpu = cpu_alone(facts) or (here == "cpu" and "cpu" in contract.platforms)
        self.contract, self.asked = contract, asked
        self.ground = Ground(facts, cpu)
        self.builds = domain(str(facts.known("os.arch") or "x86_64"), cpu)
        self.pythons = [_named(python, asked) for python in reversed(PYTHONS)]
        self.limits = limits(self.ground, contract, asked)
        self.masks = self._masks()
        self.kernels: dict[tuple[str, str, str], tuple[Kernel, ...]] = {}

    def _masks(self) -> dict[tuple[int, str], int]:
        """Return a bit mask of failed limits per choice. A limit is evaluated once per value it depends on."""
        by_torch, by_python = [0] * len(self.builds), dict.fromkeys(self.pythons, 0)
        both: dict[tuple[int, str], int] = {}
        for number, limit in enumerate(self.limits):
            bit = 1 << number
            if limit.axes == "python" and self.builds:
                for python in self.pythons:
                    by_python[python] |= bit if limit.fails(self.builds[0], python) else 0
            elif limit.axes == "torch":
                for i, build in enumerate(self.builds):
                    by_torch[i] |= bit if limit.fails(build, self.pythons[0]) else 0
            else:
                for i, build in enumerate(self.builds):
                    for python in self.pythons:
                        if limit.fails(build, python):
                            both[i, python] = both.get((i, python), 0) | bit
        return {
            (i, p): by_torch[i] | by_python[p] | both.get((i, p), 0)
            for i in range(len(self.builds))
            for p in self.pythons
        }

    def open(self) -> list[Choice]:
        """Return the choices that fail no limit, the newest torch first."""
        return [(self.builds[i], python) for (i, python), mask in self.masks.items() if not mask]

    def first(self, index: int, pythons: Sequence[str]) -> Limit | None:
        """Return the first limit that rules out a build with every Python; None if one is open."""
        least = min(
            (self.masks[index, p] for p in pythons), key=lambda m: (m != 0, (m & -m).bit_length() * -1)
        )
        return None if not least else self.limits[(least & -least).bit_length() - 1]

    def conflict(self) -> Conflict:
        numbers = conflict.smallest(self.masks.values(), len(self.limits))
        return conflict.told([self.limits[n] for n in numbers])


def _named(python: str, asked: Asked) -> str:
    """Return the full version of a Python if the requested or installed one has this minor."""
    for full in (asked.python, asked.prefer):
        if full and versions.minor(full) == versions.minor(python):
            return full
    return python


def choose(facts: Facts, contracts: Sequence[Contract], asked: Asked | None = None) -> Plan:
    """Return the plan for the first contract (newest first) that has an open choice, or why there is none."""
    wish = asked or Asked()
    machine = bare(facts)
    fell: list[Fallen] = []
    failed: list[Field] = []
    for contract in contracts:
        field = Field(machine, contract, wish)
        found = field.open()
        if found:
            return _planned(field, found, fell)
        failed.append(field)
        told = field.conflict()
        fell.append(Fallen(contract.name, told.says, told.needs[0].cite if told.needs else ""))
    return _impossible(failed, fell)


def _impossible(failed: Sequence[Field], fell: Sequence[Fallen]) -> Plan:
    first = failed[0]
    return Plan(
        framework=first.contract.framework,
        version=first.contract.version,
        variant=first.contract.variant,
        verdict="impossible",
        machine=first.ground.facts.host,
        conflicts=tuple(field.conflict() for field in failed),
        fell=tuple(fell[1:]),
        catalog=catalog.as_of(),
        notes=explain.unseen(first.ground),
        options=options(first.asked),
    )


def options(asked: Asked) -> dict[str, Any]:
    """Return the command-line flags that a plan was made with."""
    said = {"on": asked.on, "wants": asked.wants, "contract": asked.contract, "python": asked.patient}
    said |= {"version": asked.version}
    return {name: value for name, value in said.items() if value} | dict(asked.what_if)


# -- the ranking ----------------------------------------------------------------------------------------


def _planned(field: Field, found: Sequence[Choice], fell: Sequence[Fallen]) -> Plan:
    build, python = best(field, found)
    kernels = kernels_of(field, build, python)
    contract, cpu = field.contract, field.ground.cpu
    plan = Plan(
        framework=contract.framework,
        version=contract.version,
        variant=contract.variant,
        verdict="plan",
        machine=field.ground.facts.host,
        python=python,
        torch=f"{build.version}+{build.variant}",
        cuda=build.cuda,
        index="pypi" if build.pypi else build.variant,
        platform=_platform(field, build),
        packages=explain.decided(field.ground, contract, build, python),
        kernels=kernels,
        because=explain.because(field, build, python, fell),
        fell=(*fell, *_runners_up(field, build, python)),
        resolved=explain.unresolvable(contract),
        catalog=catalog.as_of(),
        notes=explain.notes(field, build, python),
        options=_with_cpu(options(field.asked)) if cpu else options(field.asked) | _capability(field),
    )
    return plan.but(steps=steps.steps(plan, contract, field.ground.facts))


def _capability(field: Field) -> dict[str, Any]:
    """Return the GPU capabilities, which the resolver's conditions read."""
    found = tuple(dict.fromkeys(map(str, shown(field.ground.facts, "gpu.capability"))))
    return {"capability": found} if found else {}


def _with_cpu(said: dict[str, Any]) -> dict[str, Any]:
    wants = [word for word in str(said.get("wants", "")).split(",") if word]
    return said | {"wants": ",".join(dict.fromkeys([*wants, "cpu"]))}


def best(field: Field, found: Sequence[Choice]) -> Choice:
    """Return the highest-ranked choice."""
    newest = found[0][0].version
    same = [choice for choice in found if choice[0].version == newest]
    same = _least(same, lambda c: not c[0].pypi)
    same = _least(same, lambda c: len(extensions.unfit(field.ground, field.contract, *c)))
    same = _least(same, lambda c: sum(k.how == "build" for k in kernels_of(field, *c)))
    return min(same, key=lambda c: (_older(c[0].cuda), _python_rank(field, *c)))


def _least(choices: list[Choice], weigh: Any) -> list[Choice]:
    weights = [weigh(choice) for choice in choices] if len(choices) > 1 else [0] * len(choices)
    return [choice for choice, weight in zip(choices, weights, strict=True) if weight == min(weights)]


def _older(cuda: str) -> tuple[int, int]:
    major, minor = versions.minor(cuda) if cuda else (0, 0)
    return -major, -minor


def _python_rank(field: Field, build: Build, python: str) -> tuple[bool, bool, bool, int]:
    """Prefer the installed Python, then one the contract advises, then the newest settled one."""
    here = bool(field.asked.prefer) and versions.minor(field.asked.prefer) == versions.minor(python)
    advice = [
        n.want for n in field.contract.wants("python.version") if n.level == "recommended" and not n.when
    ]
    advised = all(extensions.holds(want, python) for want in advice)
    return not here, not advised, not settled(field, build, python), -versions.minor(python)[1]


def settled(field: Field, build: Build, python: str) -> bool:
    """Whether torch has long had wheels for a Python, so that other packages have them too."""
    minor = "{}.{}".format(*versions.minor(python))
    releases = list(dict.fromkeys(one.version for one in field.builds))
    since = [one.version for one in field.builds if minor in one.python]
    return bool(since) and releases.index(since[-1]) - releases.index(build.version) >= SETTLED


def kernels_of(field: Field, build: Build, python: str) -> tuple[Kernel, ...]:
    """Return how the requested compiled packages come into this environment."""
    key = build.variant, build.version, python
    if key not in field.kernels:
        wanted = extensions.wanted(field.ground, field.contract)
        field.kernels[key] = _kernels(field, build, python, wanted) if not field.ground.cpu else ()
    return field.kernels[key]


def _kernels(field: Field, build: Build, python: str, wanted: Sequence[str]) -> tuple[Kernel, ...]:
    from gpuready.plan.kernels import kernels

    return kernels(field.ground.on(build), field.contract, build, python, wanted)


# -- the rest -------------------------------------------------------------------------------------------


def _platform(field: Field, build: Build) -> str:
    """Return the platform for the resolver."""
    from gpuready.plan.limits import GLIBC

    glibc = field.ground.facts.known("os.glibc") or GLIBC
    major, minor = versions.minor(str(glibc))
    return f"{build.machine}-manylinux_{major}_{minor}"


def _runners_up(field: Field, winner: Build, python: str) -> tuple[Fallen, ...]:
    """List every other build with the first reason against it."""
    fell = []
    pythons = [python, *(p for p in field.pythons if p != python)]
    for index, build in enumerate(field.builds):
        if build == winner:
            continue
        limit = field.first(index, pythons)
        name = f"torch {build.version}+{build.variant}"
        if limit is not None:
            fell.append(Fallen(name, _why(limit, build, pythons), str(limit.cite)))
        else:
            fell.append(Fallen(name, explain.lesser(field, build, winner, python)))
    return tuple(fell)


def _why(limit: Limit, build: Build, pythons: Sequence[str]) -> str:
    return next((why for p in pythons if (why := limit.fails(build, p))), limit.says)
