"""``gpuready plan``: collect facts, choose versions, resolve them, and give the reasons."""

from __future__ import annotations

from gpuready import contracts, system
from gpuready.model import Noun
from gpuready.workflow import choosing, looking
from gpuready.workflow.refusal import Refused, refusing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from gpuready.model import Contract, Facts
    from gpuready.plan.ground import Asked
    from gpuready.planned import Conflict, Plan

    Note = Callable[[str], None]

TRUSTED_DAYS = 180
"""Age in days from which a plan mentions that the catalogue is old."""


class Planned(Noun):
    """A plan for each framework, the environments they share, and why others cannot share one."""

    plans: tuple[Plan, ...]
    environments: tuple[tuple[str, ...], ...]
    conflicts: tuple[Conflict, ...] = ()
    contracts: tuple[Contract, ...] = ()
    facts: Any = None

    @property
    def verdict(self) -> str:
        return "plan" if all(plan.verdict == "plan" for plan in self.plans) else "impossible"

    @property
    def exit(self) -> int:
        return max(plan.exit for plan in self.plans)


def plan(
    frameworks: Sequence[str],
    *,
    on: str | None = None,
    python: str | None = None,
    wants: str | None = None,
    contract: str | None = None,
    what_if: Mapping[str, str] | None = None,
    resolve: bool = True,
    source: str | None = None,
    find_links: Sequence[str] = (),
    offline: bool = False,
    note: Note = lambda text: None,
) -> Planned:
    """Plan the environment for these frameworks on this or another machine; changes nothing."""
    own = None if contract is None else refusing(contracts.read, contract)
    specs = _specs(frameworks, own, looking.sees_packages(on, python))
    said = dict(what_if or {})
    facts = _look(on, python, said, specs, own).also(*looking.job(wants, None, None, own))
    told = _asked(facts, on, python, wants, contract, said)
    lines = [_lines(facts, *spec) if own is None else [own] for spec in specs]
    chosen = [_chosen(facts, line, told, spec) for line, spec in zip(lines, specs, strict=True)]
    found = _shared(facts, chosen, told).but(facts=facts)
    if not resolve:
        return _aged(_unresolved(found))
    again = _again(facts, lines[0], told, specs[0]) if len(specs) == 1 else None
    how = {"source": source, "find_links": find_links, "offline": offline, "note": note}
    return _aged(_resolved(found, again, told, how))


Spec = tuple[str, "str | None", "str | None"]


def _specs(frameworks: Sequence[str], own: Contract | None, sees: bool) -> list[Spec]:
    specs = list(dict.fromkeys(choosing.asked(spec, sees) for spec in frameworks))
    if own is None:
        return specs
    if len(specs) != 1 or specs[0][0] != own.framework:
        raise Refused(f"--contract is for {own.framework}: plan that framework, and no other, with it")
    return [(own.framework, own.version, own.variant or None)]


def _look(
    on: str | None,
    python: str | None,
    what_if: Mapping[str, str],
    specs: Sequence[Spec],
    own: Contract | None,
) -> Facts:
    collect, _, stop = looking.start(on, python, what_if, None, *looking.besides(specs, own))
    try:
        return collect()
    except BaseException:
        stop()
        raise


def _asked(
    facts: Facts,
    on: str | None,
    python: str | None,
    wants: str | None,
    contract: str | None,
    what_if: Mapping[str, str],
) -> Asked:
    from gpuready.plan.ground import Asked

    named = what_if.get("python-version") or (facts.known("python.version") if python else "")
    return Asked(
        torch=what_if.get("torch", "").strip(),
        python=str(named or ""),
        python_source="--python-version" if "python-version" in what_if else "--python",
        prefer=str(facts.known("python.version") or "") if on is None else "",
        on=on or "",
        wants=wants or "",
        what_if=what_if,
        contract=contract or "",
        patient=python or "",
    )


def _lines(facts: Facts, framework: str, version: str | None, variant: str | None) -> list[Contract]:
    """Return the contracts to try: that of the named version, else every one, newest first."""
    if not contracts.contracted(framework):
        return [choosing.contract_of(facts, framework, version, variant)]
    if version is None:
        known = every(framework, variant)
        return known or [refusing(contracts.load, framework, None, variant)]
    from gpuready.contracts.pins import exactly

    return [exactly(refusing(contracts.load, framework, version, variant), version, None)]


def every(framework: str, variant: str | None) -> list[Contract]:
    """Return every contract of one framework and variant, newest first."""
    rows = [r for r in contracts.available() if r["framework"] == framework]
    rows = [r for r in rows if r.get("variant", "") == (variant or "")]
    loaded = [contracts.load(framework, row["version"], variant) for row in rows]
    from gpuready.versions import release

    return sorted(loaded, key=lambda c: release(c.version), reverse=True)


def _chosen(facts: Facts, lines: Sequence[Contract], asked: Asked, spec: Spec) -> tuple[Plan, Contract]:
    from gpuready.plan.choose import choose

    own = asked.but(version=spec[1] or "")
    plan = choose(facts, lines, own)
    used = next((c for c in lines if c.version == plan.version), lines[0])
    if plan.verdict == "plan":
        return plan, used
    from gpuready.plan.ground import bare
    from gpuready.plan.openings import openings

    others = _others(spec, lines) if contracts.contracted(spec[0]) and not asked.contract else []
    return plan.but(opens=openings(choose, bare(facts), lines, others, own)), used


def _others(spec: Spec, lines: Sequence[Contract]) -> list[Contract]:
    """Return the other versions of the same variant, then the other variants, newest first."""
    framework, _, variant = spec
    tried = {(c.version, c.variant) for c in lines}
    variants = dict.fromkeys([variant or "", *(r.get("variant", "") for r in contracts.available())])
    found = [c for one in variants for c in every(framework, one or None)]
    return [c for c in found if (c.version, c.variant) not in tried and not _covered(c, lines)]


def _covered(contract: Contract, lines: Sequence[Contract]) -> bool:
    return any(contract.variant == c.variant and contracts.covers(contract.version, c.version) for c in lines)


# -- shared environments ---------------------------------------------------------------------------------------------


def _shared(facts: Facts, chosen: Sequence[tuple[Plan, Contract]], asked: Asked) -> Planned:
    plans = tuple(plan for plan, _ in chosen)
    used = tuple(contract for _, contract in chosen)
    if len(chosen) == 1 or any(plan.verdict != "plan" for plan in plans):
        return Planned(plans, tuple((contract.name,) for contract in used), (), used)
    from gpuready.plan.choose import choose
    from gpuready.plan.together import share

    groups, conflicts, common = share(facts, used, asked)
    adapted = []
    for plan, contract in chosen:
        with_others = common.get(contract.name)
        if with_others is not None and (with_others.torch, with_others.python) != (plan.torch, plan.python):
            pinned = asked.but(
                torch=with_others.torch,
                python=with_others.python,
                why=f"what all the frameworks here take: torch {with_others.torch}, Python {with_others.python}",
            )
            plan = choose(facts, [contract], pinned)
        adapted.append(plan)
    names = tuple(tuple(contract.name for contract in group) for group in groups)
    return Planned(tuple(adapted), names, tuple(conflicts), used)


# -- the resolution ---------------------------------------------------------------------------------------


def _unresolved(found: Planned) -> Planned:
    def marked(plan: Plan) -> Plan:
        if plan.verdict != "plan" or plan.resolved:
            return plan
        return plan.but(resolved="not resolved here: --no-resolve was asked for")

    return found.but(plans=tuple(marked(plan) for plan in found.plans))


def _again(
    facts: Facts, lines: Sequence[Contract], asked: Asked, spec: Spec
) -> Callable[[str, str, str], Plan]:
    """Return a function that chooses again with a fixed torch or Python."""

    def choose(torch: str, python: str, why: str) -> Plan:
        return _chosen(facts, lines, asked.but(torch=torch, python=python, why=why), spec)[0]

    return choose


def _resolved(
    found: Planned, again: Callable[[str, str, str], Plan] | None, asked: Asked, how: Mapping[str, Any]
) -> Planned:
    """Resolve each plan by its index; one that no index can resolve stays as chosen."""
    from gpuready.apply.resolve import resolve
    from gpuready.workflow.fallback import on_newer, settled

    door = system.Live()
    plans = []
    stated = found.facts.known("os.glibc") is not None or "os.glibc" in found.facts
    for plan, contract in zip(found.plans, found.contracts, strict=True):
        said = plan.resolved

        def once(one: Plan, contract: Contract = contract) -> Plan:
            return refusing(lambda: resolve(door, one.but(resolved=""), contract, **how))

        def answer(one: Plan, once: Callable[[Plan], Plan] = once) -> Plan:
            return once(one) if stated else on_newer(one, once)

        if plan.verdict == "plan" and again is not None:
            free = [word for word, told in (("torch", asked.torch), ("python", asked.python)) if not told]
            plan = settled(plan, again, answer, free, _wheels(door, how))
        elif plan.verdict == "plan":
            plan = answer(plan)
        if plan.lock:
            plan = _from_folder(door, plan, contract, found.facts, how)
            plan = plan.but(options=plan.options | _places(how))
        if plan.verdict == "plan" and not plan.lock and not plan.resolved:
            plan = plan.but(resolved=said or "not resolved here")
        plans.append(plan)
    return found.but(plans=tuple(plans))


def _from_folder(
    door: system.Door, plan: Plan, contract: Contract, facts: Facts, how: Mapping[str, Any]
) -> Plan:
    """Make the steps name the folder, where torch comes from a folder of wheels and no index."""
    from gpuready.apply import uv
    from gpuready.apply.question import FOLDER
    from gpuready.apply.resolve import folders_with
    from gpuready.plan.steps import steps

    if not any(row.name == "torch" and row.index == FOLDER for row in plan.lock):
        return plan
    places = refusing(uv.settings, door, how["find_links"], how["offline"]).folders
    folder = folders_with(door, plan, places).get("torch", "")
    return plan.but(steps=steps(plan, contract, facts, folder)) if folder else plan


def _places(how: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags that say where packages come from, as far as they were used."""
    told = {"source": how["source"], "find-links": list(how["find_links"]), "offline": how["offline"]}
    return {name: value for name, value in told.items() if value}


def _wheels(door: system.Door, how: Mapping[str, Any]) -> list[str]:
    """Return the file names in every configured folder of wheels."""
    from gpuready.apply import uv

    folders = refusing(uv.settings, door, how["find_links"], how["offline"]).folders
    return [name for folder in folders for name in door.list(folder) or () if name.endswith(".whl")]


def _aged(found: Planned) -> Planned:
    """Add a note where the catalogue is older than TRUSTED_DAYS."""
    days = age(found.plans[0].catalog, system.Live().wall())
    if days <= TRUSTED_DAYS:
        return found
    text = f"the catalogue is {days} days old: newer releases are not in it; upgrade gpuready"
    return found.but(plans=tuple(plan.but(notes=(*plan.notes, text)) for plan in found.plans))


def age(day: str, now: float) -> int:
    """Return how many days ago a day (``2026-11-15``) was."""
    import time

    year, month, number = (int(part) for part in day.split("-"))  # strptime would import datetime and locale
    then = time.mktime((year, month, number, 0, 0, 0, 0, 0, -1))
    return max(0, int((now - then) // 86400))


def dressed(found: Planned) -> Plan:
    """Return the plan of one framework with what a file adds: image, variables, indexes, machine."""
    if found.facts is None:
        return found.plans[0]
    from gpuready.plan.outfit import outfitted

    return outfitted(found.plans[0], found.contracts[0], found.facts)


def bundle(
    plan: Plan, folder: str, note: Note, find_links: Sequence[str] = (), offline: bool = False
) -> None:
    """Download every wheel of a plan into a folder, for a machine without network."""
    from gpuready.apply.bundle import bundle as download

    places = tuple(find_links)
    refusing(lambda: download(system.Live(), plan, folder, find_links=places, offline=offline, note=note))
