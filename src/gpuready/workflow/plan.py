"""``gpuready plan``: collect facts, choose versions, resolve them, and give the reasons."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

from gpuready import contracts, system, workflow
from gpuready.apply.bundle import write_bundle as download
from gpuready.apply.resolution_request import FOLDER_INDEX, exact_specifier
from gpuready.apply.resolve import resolve_plan as resolve
from gpuready.apply.source_checkout import open_checkout
from gpuready.apply.user_packages import ADDITIONS
from gpuready.apply.wheel_search import find_folder_wheels
from gpuready.catalog.releases import find_default, find_release, launch_command, list_releases
from gpuready.contracts.catalogued_release import judge_by_catalogue
from gpuready.contracts.pin_conflicts import is_installed_by_image_alone
from gpuready.contracts.pins import pin_exact_version
from gpuready.model import Contract, Facts, Record
from gpuready.model.plan import Plan, PlanAlternative, PlanConflict, UnresolvedCause
from gpuready.model.report import days_since, old_knowledge_note
from gpuready.model.versions import compare_versions, parse_release
from gpuready.plan.alternatives import find_alternatives, find_compat_way, plan_command
from gpuready.plan.choose import choose_plan, choose_without_torch, needs_no_torch
from gpuready.plan.deployment import add_deployment
from gpuready.plan.platform import PlanRequest, machine_facts_only
from gpuready.plan.shared_environment import group_contracts, merge_contracts
from gpuready.plan.steps import make_plan_steps
from gpuready.workflow import contract_choice, machine_facts
from gpuready.workflow.contract_choice import FrameworkSpec
from gpuready.workflow.fallback import TORCH_PARTS, ask_index_once, resolve_or_fall_back
from gpuready.workflow.index_contract import (
    ReleaseFinder,
    add_extras,
    choose_package_contract,
    contracts_by_release,
    judge_by_index,
    list_folder_wheels,
    list_older_releases,
    make_torch_finder,
    make_wheel_finder,
    wheel_folders,
)
from gpuready.workflow.judge import make_fault_finder, make_plan_judge
from gpuready.workflow.refusal import Refused, call_or_refuse

ShowNote = Callable[..., None]


MAX_OTHER_TRIES = 3
"""How many other choices are resolved, where uv finds no environment for the first."""


class AskedFramework(Record):
    """One framework as it was asked for, with the default of its guide where that was taken (``note``)."""

    framework: str
    version: str | None = None
    variant: str | None = None
    extras: tuple[str, ...] = ()
    note: str = ""

    @property
    def spec(self) -> FrameworkSpec:
        return self.framework, self.version, self.variant


class PlanResult(Record):
    """A plan for each framework, the environments they share, and why others cannot share one."""

    plans: tuple[Plan, ...]
    environments: tuple[tuple[str, ...], ...]
    conflicts: tuple[PlanConflict, ...] = ()
    contracts: tuple[Contract, ...] = ()
    facts: Facts | None = None

    @property
    def verdict(self) -> str:
        return "plan" if all(plan.verdict == "plan" for plan in self.plans) else "impossible"

    @property
    def exit(self) -> int:
        return max(plan.exit for plan in self.plans)


def plan_frameworks(
    frameworks: Sequence[str],
    *,
    on: str | None = None,
    python: str | None = None,
    wants: str | None = None,
    contract: str | None = None,
    config: str | None = None,
    what_if: Mapping[str, str] | None = None,
    resolve: bool = True,
    ask_index: bool | None = None,
    source: str | None = None,
    find_links: Sequence[str] = (),
    offline: bool = False,
    allow_build: bool = False,
    use_project_config: bool = False,
    additions: Sequence[str] = (),
    note: ShowNote = lambda *_: None,
    run_python: bool = False,
) -> PlanResult:
    """Plan the environment for these frameworks on this or another machine; changes nothing.

    ``ask_index``: what releases require is read from the index; without it, as ``resolve`` says.
    """
    own_contract = None if contract is None else contract_choice.read_named_contract(contract)
    asked = _parse_asked(frameworks, own_contract)
    stated = dict(what_if or {})
    specs = [one.spec for one in asked]
    facts = workflow.collect_facts(
        on, python, stated, specs, own_contract, wants=wants, config=config, run_python=run_python
    )
    asked = asked if own_contract else [_take_default(one, facts) for one in asked]
    facts = contract_choice.add_extras(facts, [extra for one in asked for extra in one.extras])
    request = _make_plan_request(facts, on, python, wants, contract, stated)
    ask = resolve if ask_index is None else ask_index
    find_release = ReleaseFinder(request.python, find_links, offline, use_project_config) if ask else None
    choices, lines = [], []
    for one in asked:
        found = [own_contract] if own_contract else _contracts_to_try(facts, one, find_release)
        line = [contract_choice.add_job_needs(each, facts) for each in found]
        choices.append(_choose_plan(facts, line, request, one, find_release))
        lines.append(line if choices[-1][1] in line else [choices[-1][1]])
    result = _share_environments(facts, choices, request).replace(facts=facts)
    if not resolve:
        return _finish_plans(_mark_unresolved(result), facts, config)
    first = asked[0] if choices[0][1] in lines[0] else asked[0].replace(version=choices[0][1].version)
    choose_again = _make_chooser(facts, lines[0], request, first) if len(asked) == 1 else None
    resolve_options = {"source": _open_source(source), "find_links": find_links, "offline": offline, "note": note}
    resolve_options |= {"allow_build": allow_build, "use_project_config": use_project_config, "additions": additions}
    resolved = _resolve_plans(result, facts, choose_again, request, resolve_options)
    if choose_again and own_contract is None and resolved.verdict == "impossible":
        resolved = _resolve_others(resolved, facts, find_release, request, asked[0], resolve_options)
    if resolved.verdict == "impossible" and len(result.plans) < len(asked):
        apart = _take_apart(choices, resolved)
        resolved = _resolve_plans(apart, facts, None, request, resolve_options)
    if find_release and own_contract is None:
        resolved = resolved.replace(
            plans=tuple(_note_newer_release(plan, asked, find_release) for plan in resolved.plans)
        )
    return _finish_plans(resolved, facts, config)


def _take_apart(choices: Sequence[tuple[Plan, Contract]], joined: PlanResult) -> PlanResult:
    """Return an environment for each framework, where uv finds none for those that were to share one, and why it does not."""
    names = " and ".join(contract.name for _, contract in choices)
    conflicts = [
        one.replace(says=f"no environment has {names}: {one.says}") for plan in joined.plans for one in plan.conflicts
    ]
    environments = tuple((contract.name,) for _, contract in choices)
    plans, used = tuple(plan for plan, _ in choices), tuple(contract for _, contract in choices)
    return PlanResult(plans, environments, (*joined.conflicts, *conflicts), used, joined.facts)


def _note_newer_release(plan: Plan, asked: Sequence[AskedFramework], find_release: ReleaseFinder) -> Plan:
    """Say where the index has a newer release of a framework than the catalogue knows, which nobody named."""
    name = contracts.distribution_name(plan.framework)
    is_open = any(one.framework == plan.framework and not one.version for one in asked)
    newest = list_releases(name)[-1:] or [""]
    found = find_release(name, None) if is_open and contracts.has_contract(plan.framework) and newest[0] else None
    if found is None or not found.has_wheel or compare_versions(found.version, newest[0]) <= 0:
        return plan
    note = f"{name} {found.version} is out, not known here: `gpuready plan {plan.framework}=={found.version}` plans it by its metadata"
    return plan.replace(notes=(*plan.notes, note))


def plan_here_or_elsewhere(frameworks: Sequence[str], **options: Any) -> PlanResult:
    """Plan for this machine; where it has no GPU and the framework needs one, for one that has, which the notes name."""
    result = plan_frameworks(frameworks, **options)
    ways = [one for one in result.plans[0].opens if one.kind == "gpu" and "--on" in one.run]
    platform = result.facts.value_if_known("platform.name") if result.facts else ""
    if result.verdict == "plan" or options.get("on") or not ways or platform not in (None, "cpu"):
        return result
    gpu, on_cpu = ways[0].run[ways[0].run.index("--on") + 1], ",".join(filter(None, (options.get("wants"), "cpu")))
    notes = [f"this machine has no GPU: this is the plan for --on {gpu}"]
    notes += [f"or {one.change}: {one.then}" for one in ways[1:]]
    for_cpu = options | {"resolve": False, "ask_index": options.get("resolve", True), "source": None, "wants": on_cpu}
    if plan_frameworks(frameworks, **for_cpu).verdict == "plan":
        notes.append(f"or for this CPU: gpuready plan {' '.join(frameworks)} --wants {on_cpu}")
    planned = plan_frameworks(frameworks, **(options | {"on": gpu}))
    first, *rest = planned.plans
    return planned.replace(plans=(first.replace(notes=(*notes, *first.notes)), *rest))


def _open_source(source: str | None) -> str | None:
    return call_or_refuse(open_checkout, system.LiveHost(), source) if source else None


def _resolve_others(
    failed: PlanResult,
    facts: Facts,
    find_release: ReleaseFinder | None,
    request: PlanRequest,
    asked: AskedFramework,
    resolve_options: Mapping[str, Any],
) -> PlanResult:
    """Choose again, where uv finds no environment: with the pins of the release itself in place of the contract's, then older releases."""
    used, judge = failed.contracts[0], make_plan_judge(facts)
    is_proven = find_release is not None and failed.plans[0].resolved == "resolved"
    same = contracts_by_release(facts, used, find_release) if find_release and is_proven else ()
    others = () if asked.version else _list_older(facts, asked, [used], find_release)
    older = (one for one in others if one.variant == used.variant and compare_versions(one.version, used.version) < 0)
    fitting = (
        (plan, one)
        for one in chain((contract_choice.add_job_needs(one, facts) for one in same), older)
        if (
            plan := choose_plan(facts, [one], request.replace(version=asked.version or "", extras=asked.extras), judge)
        ).verdict
        == "plan"
    )
    for plan, one in islice(fitting, MAX_OTHER_TRIES):
        chooser = _make_chooser(facts, [one], request, asked.replace(version=one.version))
        result = _share_environments(facts, [(plan, one)], request).replace(facts=facts)
        again = _resolve_plans(result, facts, chooser, request, resolve_options)
        if again.verdict == "plan":
            why = (f"not {used.name}: {failed.plans[0].conflicts[0].says}",) if one.version != used.version else ()
            return again.replace(plans=(again.plans[0].replace(notes=(*again.plans[0].notes, *why)),))
    return failed


def _list_older(
    facts: Facts, asked: AskedFramework, lines: Sequence[Contract], find_release: ReleaseFinder | None
) -> Iterator[Contract]:
    """Yield the other releases of a framework that the catalogue knows, the newest first, with what the extras add."""
    for one in (*_other_contracts(asked.spec, lines), *_older_releases(asked.spec, lines)):
        yield add_extras(facts, contract_choice.add_job_needs(one, facts), asked.extras, find_release)


def _finish_plans(result: PlanResult, facts: Facts, config: str | None) -> PlanResult:
    """Add to the chosen plans what does not depend on the choice."""
    plans = [
        add_start_command(plan.replace(contract_note=contracts.foreign_note(contract)), facts, config)
        for plan, contract in zip(result.plans, result.contracts, strict=True)
    ]
    return _note_catalog_age(result.replace(plans=tuple(plans)))


def add_start_command(plan: Plan, facts: Facts, config: str | None) -> Plan:
    """Add the framework's own command, for the job's file if there is one."""
    file = machine_facts.load_job_file(config)
    gpus = facts.value_if_known("gpu.count") or 1
    start = launch_command(plan.framework, int(gpus), config or "", file.kind if file else "")
    options = plan.options | ({"config": config} if config else {})
    is_installed = plan.verdict == "plan" and not plan.is_image_alone  # an image has its own
    return plan.replace(start=start, options=options) if is_installed else plan


def _parse_asked(frameworks: Sequence[str], own_contract: Contract | None) -> list[AskedFramework]:
    asked = [
        AskedFramework(*contract_choice.parse_framework_spec(text, True), contracts.parse_extras(text))
        for text in frameworks
    ]
    if own_contract is None:
        return list(dict.fromkeys(asked))
    if len(asked) != 1 or asked[0].framework != own_contract.framework:
        raise Refused(f"--contract is for {own_contract.framework}: plan that framework, and no other, with it")
    return [AskedFramework(own_contract.framework, own_contract.version, own_contract.variant or None)]


def _take_default(asked: AskedFramework, facts: Facts) -> AskedFramework:
    """Return a framework with the engine or the variant of its own guide, where it needs one and none was named."""
    row = find_default(asked.framework)
    words = {str(word) for word in (*(facts.value_if_known("job.wants") or ()), *asked.extras)}
    if row is None or asked.variant or asked.version or words & {*row.get("unless", ()), "cpu"}:
        return asked
    return asked.replace(
        variant=row.get("variant"), extras=(*asked.extras, *row.get("extras", ())), note=str(row["says"])
    )


def _make_plan_request(
    facts: Facts,
    on: str | None,
    python: str | None,
    wants: str | None,
    contract: str | None,
    what_if: Mapping[str, str],
) -> PlanRequest:
    named = what_if.get("python-version") or (facts.value_if_known("python.version") if python else "")
    file_wants = [w for w in facts.value_if_known("job.wants") or () if w != "cpu"] if "job.wants" in facts else []
    return PlanRequest(
        torch=what_if.get("torch", "").strip(),
        python=str(named or ""),
        python_source="--as python-version" if "python-version" in what_if else "--python",
        prefer=str(facts.value_if_known("python.version") or "") if on is None else "",
        on=on or "",
        wants=",".join(dict.fromkeys([*(wants.split(",") if wants else ()), *file_wants])),
        what_if=what_if,
        contract=contract or "",
        target_python=python or "",
    )


def _contracts_to_try(facts: Facts, asked: AskedFramework, find_release: ReleaseFinder | None) -> list[Contract]:
    """Return the contracts to try, with what the extras add: that of the named version, else every one, newest first."""
    found = _list_asked_contracts(facts, asked, find_release)
    return [add_extras(facts, one, asked.extras, find_release) for one in found]


def _list_asked_contracts(facts: Facts, asked: AskedFramework, find_release: ReleaseFinder | None) -> list[Contract]:
    framework, version, variant = asked.spec
    if not contracts.has_contract(framework):
        chosen = choose_package_contract(facts, framework, version, find_release, asked.extras)
        return [pin_exact_version(chosen, chosen.version, None)]
    if version is None:
        known = list_framework_contracts(framework, variant)
        return known or [call_or_refuse(contracts.load_contract, framework, None, variant)]
    contract = call_or_refuse(contracts.load_contract, framework, version, variant)
    lines = judge_by_index(facts, contract, find_release) if contracts.is_borrowed(contract) else [contract]
    return [pin_exact_version(one, version, None) for one in lines]


def list_framework_contracts(framework: str, variant: str | None) -> list[Contract]:
    """Return every contract of one framework and variant, newest first."""
    rows = [r for r in contracts.list_contract_rows() if r["framework"] == framework]
    rows = [r for r in rows if r.get("variant", "") == (variant or "")]
    loaded = [contracts.load_contract(framework, row["version"], variant) for row in rows]
    return sorted(loaded, key=lambda c: parse_release(c.version), reverse=True)


def _choose_plan(
    facts: Facts,
    lines: Sequence[Contract],
    request: PlanRequest,
    asked: AskedFramework,
    find_release: ReleaseFinder | None = None,
) -> tuple[Plan, Contract]:
    """Choose from these contracts; where none fits and no version was named, from the newest older release that does."""
    own_request = request.replace(version=asked.version or "", extras=asked.extras)
    judge = make_plan_judge(facts)
    choose = choose_without_torch if needs_no_torch(lines[0]) else choose_plan
    plan = choose(facts, lines, own_request, judge)
    used = next((c for c in lines if c.version == plan.version), lines[0])
    notes = (asked.note,) if asked.note else ()
    if plan.verdict == "plan":
        return plan.replace(notes=(*plan.notes, *notes)), used
    is_ours = contracts.has_contract(asked.framework) and not request.contract
    older_ones = _list_older(facts, asked, lines, find_release) if is_ours else iter(())
    is_open = find_release and not contracts.has_contract(asked.framework) and not needs_no_torch(used)
    if find_release and is_open and _is_about(used, plan.conflicts[0]):
        older_ones = list_older_releases(facts, used, find_release)
    others = list(_list_older(facts, asked.replace(extras=()), lines, None)) if is_ours else []
    same = (one for one in older_ones if not asked.version and (asked.note or one.variant == (asked.variant or "")))
    for other in same:
        older = choose_plan(facts, [other], own_request.replace(version=other.version), judge)
        if older.verdict == "plan":
            why = f"not {used.name}: {plan.conflicts[0].says}"
            ways = find_compat_way(choose_plan, machine_facts_only(facts), lines, own_request)
            return older.replace(notes=(*older.notes, why, *(f"or {one.change}: {one.then}" for one in ways))), other

    def choose_judged(changed: Facts, contracts_used: Sequence[Contract], one: PlanRequest) -> Plan:
        return choose(changed, contracts_used, one, make_plan_judge(changed))

    ways = find_alternatives(choose_judged, machine_facts_only(facts), lines, others, own_request)
    older_cuda = _list_older_cuda(facts, own_request, asked, find_release) if needs_no_torch(used) else ()
    return plan.replace(notes=(*plan.notes, *notes), opens=(*older_cuda, *ways)), used


def _list_older_cuda(
    facts: Facts, request: PlanRequest, asked: AskedFramework, find_release: ReleaseFinder | None
) -> Iterator[PlanAlternative]:
    """Yield the same package for an older CUDA, where that fits: ``cuml-cu12`` in the place of ``cuml-cu13``."""
    wants = ",".join(word for word in request.wants.split(",") if word not in asked.extras)
    for major in ("12", "11"):
        name, *extras = (re.sub(r"(cu(?:da)?)1\d", rf"\g<1>{major}", one) for one in (asked.framework, *asked.extras))
        other = AskedFramework(name, extras=tuple(extras))
        if (other.framework, other.extras) == (asked.framework, asked.extras):
            continue
        wanted = request.replace(version="", extras=other.extras, wants=wants)
        try:
            line = _contracts_to_try(facts, other, find_release)
            plan = choose_without_torch(facts, line, wanted, make_plan_judge(facts))
        except (Refused, ValueError):  # there is none for that CUDA, or none of its own
            continue
        then = f"{plan.framework} {plan.version} for CUDA {major}"
        if plan.verdict == "plan" and needs_no_torch(line[0]):
            yield PlanAlternative("release", f"take {plan.spec}", then, plan_command(line[0], wanted))


def _is_about(contract: Contract, conflict: PlanConflict) -> bool:
    """Whether a conflict is about what a release itself asks for or has code for, so that another one may differ."""
    name = contract.distribution or contract.framework
    cited = any(f"of {name} " in need.cite or need.key == f"package.{name}" for need in conflict.needs)
    return cited or any(fact.key == f"package.{name}" for fact in conflict.facts)


def _other_contracts(spec: FrameworkSpec, lines: Sequence[Contract]) -> list[Contract]:
    """Return the other versions of the same variant, then the other variants, newest first."""
    framework, _, variant = spec
    tried = {(c.version, c.variant) for c in lines}
    variants = dict.fromkeys([variant or "", *(r.get("variant", "") for r in contracts.list_contract_rows())])
    candidates = [c for one in variants for c in list_framework_contracts(framework, one or None)]
    return [c for c in candidates if (c.version, c.variant) not in tried and not _is_covered(c, lines)]


def _older_releases(spec: FrameworkSpec, lines: Sequence[Contract]) -> Iterator[Contract]:
    """Yield releases without a contract by what the catalogue has of them, the newest for each torch that they ask for.

    They are older than the newest that has a contract, and than the lines that were tried unless a version was named.
    """
    framework, asked_version, variant = spec
    name = contracts.distribution_name(framework)
    asked, newest = {""}, list_framework_contracts(framework, variant)[:1]
    for version in reversed(list_releases(name)):
        _, row = find_release(name, version) or ("", {})
        torch = str(row.get("torch", ""))
        bounds = newest if asked_version else lines
        if torch in asked or any(compare_versions(version, line.version) >= 0 for line in bounds):
            continue
        asked.add(torch)
        contract = contracts.load_contract(framework, version, variant)
        if contracts.is_borrowed(contract):
            yield pin_exact_version(judge_by_catalogue(contract), version, None)


def _is_covered(contract: Contract, lines: Sequence[Contract]) -> bool:
    return any(contract.variant == c.variant and contracts.covers_version(contract.version, c.version) for c in lines)


# -- shared environments ---------------------------------------------------------------------------------------------


def _share_environments(facts: Facts, chosen: Sequence[tuple[Plan, Contract]], request: PlanRequest) -> PlanResult:
    plans = tuple(plan for plan, _ in chosen)
    used = tuple(contract for _, contract in chosen)
    if len(chosen) == 1 or not all(plan.torch for plan in plans):
        return PlanResult(plans, tuple((contract.name,) for contract in used), (), used)
    groups, conflicts, shared_plans = group_contracts(facts, used, request)
    adapted = []
    for plan, contract in chosen:
        with_others = shared_plans.get(contract.name)
        if with_others is not None and (with_others.torch, with_others.python) != (plan.torch, plan.python):
            pinned = request.replace(
                torch=with_others.torch,
                python=with_others.python,
                why=f"what all the frameworks here take: torch {with_others.torch}, Python {with_others.python}",
            )
            plan = choose_plan(facts, [contract], pinned)
        adapted.append(plan)
    names = tuple(tuple(contract.name for contract in group) for group in groups)
    joined = [
        _join_group(facts, group, [plan for plan, one in zip(adapted, used, strict=True) if one in group])
        for group in groups
    ]
    return PlanResult(tuple(p for p, _ in joined), names, tuple(conflicts), tuple(c for _, c in joined))


def _join_group(facts: Facts, group: Sequence[Contract], plans: Sequence[Plan]) -> tuple[Plan, Contract]:
    """Return one plan for frameworks that share an environment: that of the first, to which the others are added."""
    first, *others = group
    added = [
        f"{contracts.distribution_name(one.framework)}{plan.brackets}{exact_specifier(plan.version)}"
        for one, plan in zip(others, plans[1:], strict=True)
    ]
    if not added:
        return plans[0], first
    merged = merge_contracts(group).replace(framework=first.framework, distribution=first.distribution)
    notes = tuple(dict.fromkeys(note for plan in plans for note in plan.notes))
    joined = plans[0].replace(options=plans[0].options | {ADDITIONS: added}, notes=notes)
    return joined.replace(steps=make_plan_steps(joined, merged, facts)), merged


# -- the resolution ---------------------------------------------------------------------------------------


def _mark_unresolved(result: PlanResult) -> PlanResult:
    def mark_plan(plan: Plan) -> Plan:
        if plan.verdict != "plan" or plan.resolved:
            return plan
        options = plan.options | {"no-resolve": True}
        return plan.replace(resolved="not resolved here: --no-resolve was asked for", options=options)

    return result.replace(plans=tuple(mark_plan(plan) for plan in result.plans))


def _make_chooser(
    facts: Facts, lines: Sequence[Contract], request: PlanRequest, asked: AskedFramework
) -> Callable[[str, str, str], Plan]:
    """Return a function that chooses again with a fixed torch or Python."""

    def choose_again(torch: str, python: str, why: str) -> Plan:
        return _choose_plan(facts, lines, request.replace(torch=torch, python=python, why=why), asked)[0]

    return choose_again


def _resolve_plans(
    result: PlanResult,
    facts: Facts,
    choose_again: Callable[[str, str, str], Plan] | None,
    request: PlanRequest,
    resolve_options: Mapping[str, Any],
) -> PlanResult:
    """Resolve each plan by its index; one that no index can resolve stays as chosen."""
    host = system.LiveHost()
    plans = []
    folders = wheel_folders(host, resolve_options)
    find_wheels = make_wheel_finder(host, resolve_options)

    def has_local_torch(plan: Plan) -> bool:
        return "torch" in find_folder_wheels(host, plan, folders)

    for plan, contract in zip(result.plans, result.contracts, strict=True):
        unresolved_reason = plan.resolved
        if not plan.torch or is_installed_by_image_alone(contract):
            plans.append(plan)
            continue

        def resolve_once(one: Plan, contract: Contract = contract) -> Plan:
            options = {**resolve_options, "find_fault": make_fault_finder(facts, contract)}
            options["additions"] = [*resolve_options["additions"], *one.options.get(ADDITIONS, ())]
            return call_or_refuse(lambda: resolve(host, one.replace(resolved=""), contract, **options))

        resolve_plan = ask_index_once(resolve_once, has_local_torch, host.get_monotonic_time)

        if plan.verdict == "plan" and choose_again is not None:
            free = [word for word, value in (("torch", request.torch), ("python", request.python)) if not value]
            plan = resolve_or_fall_back(
                plan,
                choose_again,
                resolve_plan,
                free,
                list_folder_wheels(host, resolve_options),
                find_wheels,
                make_torch_finder(host, resolve_options),
            )
        elif plan.verdict == "plan":
            plan = resolve_plan(plan)
        if plan.lock:
            plan = _make_lock_steps(host, plan, contract, facts, resolve_options)
            plan = plan.replace(options=plan.options | _source_options(resolve_options))
        unread = [UnresolvedCause(kind, (plan.index,)) for kind in ("index-unread", "index-refuses")]
        if plan.verdict == "plan" and not plan.lock and plan.unresolved in unread:
            plan = _resolve_rest(plan, resolve_once)
        if plan.verdict == "plan" and not plan.lock and not plan.resolved:
            plan = plan.replace(resolved=unresolved_reason or "not resolved here")
        plans.append(plan)
    return result.replace(plans=tuple(plans))


def _resolve_rest(plan: Plan, resolve: Callable[[Plan], Plan]) -> Plan:
    """Resolve all but torch, where torch's own index alone cannot be reached: with the torch of that release on PyPI in its place.

    What uv holds against other packages then holds beside any build of torch.
    """
    rest = resolve(plan.replace(index="pypi", unresolved=None))
    proof = rest.conflicts[-1] if rest.conflicts else None
    if proof and not proof.facts and not any(map(TORCH_PARTS.fullmatch, re.findall(r"[\w-]+", proof.says))):
        return rest.replace(index=plan.index)
    found = {row.name: row.version for row in rest.lock if not TORCH_PARTS.fullmatch(row.name)}
    if not found:
        return plan
    note = f"{len(found)} other packages were resolved (--json); torch and what it brings are left to the index {plan.index}"
    return plan.replace(packages=found | plan.packages, notes=(*plan.notes, note))


def _make_lock_steps(
    host: system.HostAccess, plan: Plan, contract: Contract, facts: Facts, resolve_options: Mapping[str, Any]
) -> Plan:
    """Make the steps of what is locked, which may not be what was chosen; torch may come from a folder of wheels."""
    folder = ""
    if any(row.name == "torch" and row.index == FOLDER_INDEX for row in plan.lock):
        folder = find_folder_wheels(host, plan, wheel_folders(host, resolve_options)).get("torch", "")
    return plan.replace(steps=make_plan_steps(plan, contract, facts, folder))


def _source_options(resolve_options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags that say where packages come from, as far as they were used."""
    options = {
        "source": resolve_options["source"],
        "find-links": list(resolve_options["find_links"]),
        "offline": resolve_options["offline"],
        "allow-build": resolve_options["allow_build"],
        "use-project-config": resolve_options["use_project_config"],
        ADDITIONS: list(resolve_options["additions"]),
    }
    return {name: value for name, value in options.items() if value}


def _note_catalog_age(result: PlanResult) -> PlanResult:
    """Add a note where gpuready's knowledge is old."""
    text = old_knowledge_note(days_since(result.plans[0].catalog, system.LiveHost().get_wall_time()))
    if not text:
        return result
    return result.replace(plans=tuple(plan.replace(notes=(*plan.notes, text)) for plan in result.plans))


def add_file_details(result: PlanResult) -> Plan:
    """Return the plan of one framework with what a file adds: image, variables, indexes, machine."""
    if result.facts is None:
        return result.plans[0]
    return add_deployment(result.plans[0], result.contracts[0], result.facts)


def bundle_wheels(plan: Plan, folder: str, note: ShowNote, **sources: Any) -> None:
    """Download every wheel of a plan into a folder, for a machine without network."""
    call_or_refuse(lambda: download(system.LiveHost(), plan, folder, note=note, **sources))
