"""``gpuready plan``: collect facts, choose versions, resolve them, and give the reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gpuready import contracts, system, workflow
from gpuready.apply.bundle import write_bundle as download
from gpuready.apply.resolution_request import FOLDER_INDEX
from gpuready.apply.resolve import resolve_plan as resolve
from gpuready.apply.source_checkout import open_checkout
from gpuready.apply.user_packages import ADDITIONS
from gpuready.apply.wheel_search import find_folder_wheels
from gpuready.catalog.releases import find_release, launch_command, list_releases
from gpuready.contracts.catalogued_release import judge_by_catalogue
from gpuready.contracts.pin_conflicts import is_installed_by_image_alone
from gpuready.contracts.pins import pin_exact_version
from gpuready.model import Contract, Facts, Record
from gpuready.model.plan import Plan, PlanConflict
from gpuready.model.report import days_since, old_knowledge_note
from gpuready.model.versions import compare_versions, parse_release
from gpuready.plan.alternatives import find_alternatives
from gpuready.plan.choose import choose_plan
from gpuready.plan.deployment import add_deployment
from gpuready.plan.platform import PlanRequest, machine_facts_only
from gpuready.plan.shared_environment import group_contracts
from gpuready.plan.steps import make_plan_steps
from gpuready.workflow import contract_choice, machine_facts
from gpuready.workflow.contract_choice import FrameworkSpec
from gpuready.workflow.fallback import ask_index_once, resolve_for_newer_glibc, resolve_or_fall_back
from gpuready.workflow.index_contract import (
    ReleaseFinder,
    choose_package_contract,
    contracts_by_release,
    judge_by_index,
    list_folder_wheels,
    make_release_finder,
    make_torch_finder,
    make_wheel_finder,
    wheel_folders,
)
from gpuready.workflow.judge import make_fault_finder, make_plan_judge
from gpuready.workflow.refusal import Refused, call_or_refuse

ShowNote = Callable[..., None]


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
    source: str | None = None,
    find_links: Sequence[str] = (),
    offline: bool = False,
    allow_build: bool = False,
    use_project_config: bool = False,
    additions: Sequence[str] = (),
    note: ShowNote = lambda *_: None,
    run_python: bool = False,
) -> PlanResult:
    """Plan the environment for these frameworks on this or another machine; changes nothing."""
    own_contract = None if contract is None else contract_choice.read_named_contract(contract)
    specs = _parse_specs(frameworks, own_contract, resolve or machine_facts.sees_packages(on, python))
    stated = dict(what_if or {})
    facts = workflow.collect_facts(
        on, python, stated, specs, own_contract, wants=wants, config=config, run_python=run_python
    )
    request = _make_plan_request(facts, on, python, wants, contract, stated)
    find_release = make_release_finder(facts, request, find_links, offline, use_project_config) if resolve else None
    contract_lines = [
        _contracts_to_try(facts, *spec, find_release) if own_contract is None else [own_contract] for spec in specs
    ]
    choices = [_choose_plan(facts, line, request, spec) for line, spec in zip(contract_lines, specs, strict=True)]
    result = _share_environments(facts, choices, request).replace(facts=facts)
    if not resolve:
        return _finish_plans(_mark_unresolved(result), facts, config)
    choose_again = _make_chooser(facts, contract_lines[0], request, specs[0]) if len(specs) == 1 else None
    resolve_options = {"source": _open_source(source), "find_links": find_links, "offline": offline, "note": note}
    resolve_options |= {"allow_build": allow_build, "use_project_config": use_project_config, "additions": additions}
    resolved = _resolve_plans(result, facts, choose_again, request, resolve_options)
    if choose_again and find_release and own_contract is None and resolved.verdict == "impossible":
        resolved = _resolve_by_release(resolved, facts, find_release, request, specs[0], resolve_options)
    return _finish_plans(resolved, facts, config)


def _open_source(source: str | None) -> str | None:
    return call_or_refuse(open_checkout, system.LiveHost(), source) if source else None


def _resolve_by_release(
    failed: PlanResult,
    facts: Facts,
    find_release: ReleaseFinder,
    request: PlanRequest,
    spec: FrameworkSpec,
    resolve_options: Mapping[str, Any],
) -> PlanResult:
    """Choose again with the pins of the release itself, where those of the contract resolve to nothing."""
    if failed.plans[0].resolved != "resolved":
        return failed
    for contract in contracts_by_release(facts, failed.contracts[0], find_release):
        choice = _choose_plan(facts, [contract], request, spec)
        result = _share_environments(facts, [choice], request).replace(facts=facts)
        chooser = _make_chooser(facts, [contract], request, spec)
        again = _resolve_plans(result, facts, chooser, request, resolve_options)
        if again.plans[0].lock:
            return again
    return failed


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


def _parse_specs(frameworks: Sequence[str], own_contract: Contract | None, sees_packages: bool) -> list[FrameworkSpec]:
    knows_any = sees_packages or own_contract is not None
    specs = list(dict.fromkeys(contract_choice.parse_framework_spec(spec, knows_any) for spec in frameworks))
    if own_contract is None:
        return specs
    if len(specs) != 1 or specs[0][0] != own_contract.framework:
        raise Refused(f"--contract is for {own_contract.framework}: plan that framework, and no other, with it")
    return [(own_contract.framework, own_contract.version, own_contract.variant or None)]


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
        python_source="--python-version" if "python-version" in what_if else "--python",
        prefer=str(facts.value_if_known("python.version") or "") if on is None else "",
        on=on or "",
        wants=",".join(dict.fromkeys([*(wants.split(",") if wants else ()), *file_wants])),
        what_if=what_if,
        contract=contract or "",
        target_python=python or "",
    )


def _contracts_to_try(
    facts: Facts, framework: str, version: str | None, variant: str | None, find_release: ReleaseFinder | None
) -> list[Contract]:
    """Return the contracts to try: that of the named version, else every one, newest first."""
    if not contracts.has_contract(framework):
        return [choose_package_contract(facts, framework, version, find_release)]
    if version is None:
        known = list_framework_contracts(framework, variant)
        return known or [call_or_refuse(contracts.load_contract, framework, None, variant)]
    contract = call_or_refuse(contracts.load_contract, framework, version, variant)
    found = judge_by_index(facts, contract, find_release) if contracts.is_borrowed(contract) else [contract]
    return [pin_exact_version(one, version, None) for one in found]


def list_framework_contracts(framework: str, variant: str | None) -> list[Contract]:
    """Return every contract of one framework and variant, newest first."""
    rows = [r for r in contracts.list_contract_rows() if r["framework"] == framework]
    rows = [r for r in rows if r.get("variant", "") == (variant or "")]
    loaded = [contracts.load_contract(framework, row["version"], variant) for row in rows]
    return sorted(loaded, key=lambda c: parse_release(c.version), reverse=True)


def _choose_plan(
    facts: Facts, lines: Sequence[Contract], request: PlanRequest, spec: FrameworkSpec
) -> tuple[Plan, Contract]:
    own_request = request.replace(version=spec[1] or "")
    lines = [contract_choice.add_job_needs(line, facts) for line in lines]
    plan = choose_plan(facts, lines, own_request, make_plan_judge(facts))
    used = next((c for c in lines if c.version == plan.version), lines[0])
    if plan.verdict == "plan":
        return plan, used
    is_ours = contracts.has_contract(spec[0]) and not request.contract
    others = [*_other_contracts(spec, lines), *_older_releases(spec, lines)] if is_ours else []
    return plan.replace(
        opens=find_alternatives(choose_plan, machine_facts_only(facts), lines, others, own_request)
    ), used


def _other_contracts(spec: FrameworkSpec, lines: Sequence[Contract]) -> list[Contract]:
    """Return the other versions of the same variant, then the other variants, newest first."""
    framework, _, variant = spec
    tried = {(c.version, c.variant) for c in lines}
    variants = dict.fromkeys([variant or "", *(r.get("variant", "") for r in contracts.list_contract_rows())])
    candidates = [c for one in variants for c in list_framework_contracts(framework, one or None)]
    return [c for c in candidates if (c.version, c.variant) not in tried and not _is_covered(c, lines)]


def _older_releases(spec: FrameworkSpec, lines: Sequence[Contract]) -> Iterator[Contract]:
    """Yield older releases without a contract by what the catalogue has of them: the newest for each torch that they ask for."""
    framework, _, variant = spec
    name = contracts.distribution_name(framework)
    asked = {""}
    for version in reversed(list_releases(name)):
        _, row = find_release(name, version) or ("", {})
        torch = str(row.get("torch", ""))
        if torch in asked or any(compare_versions(version, line.version) >= 0 for line in lines):
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
    if len(chosen) == 1 or any(plan.verdict != "plan" or plan.is_image_alone for plan in plans):
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
    return PlanResult(tuple(adapted), names, tuple(conflicts), used)


# -- the resolution ---------------------------------------------------------------------------------------


def _mark_unresolved(result: PlanResult) -> PlanResult:
    def mark_plan(plan: Plan) -> Plan:
        if plan.verdict != "plan" or plan.resolved:
            return plan
        options = plan.options | {"no-resolve": True}
        return plan.replace(resolved="not resolved here: --no-resolve was asked for", options=options)

    return result.replace(plans=tuple(mark_plan(plan) for plan in result.plans))


def _make_chooser(
    facts: Facts, lines: Sequence[Contract], request: PlanRequest, spec: FrameworkSpec
) -> Callable[[str, str, str], Plan]:
    """Return a function that chooses again with a fixed torch or Python."""

    def choose_again(torch: str, python: str, why: str) -> Plan:
        return _choose_plan(facts, lines, request.replace(torch=torch, python=python, why=why), spec)[0]

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
    folders, judge_plan = wheel_folders(host, resolve_options), make_plan_judge(facts)
    find_wheels = make_wheel_finder(host, resolve_options)

    def has_local_torch(plan: Plan) -> bool:
        return "torch" in find_folder_wheels(host, plan, folders)

    is_glibc_stated = facts.value_if_known("os.glibc") is not None or "os.glibc" in facts
    for plan, contract in zip(result.plans, result.contracts, strict=True):
        unresolved_reason = plan.resolved
        if plan.is_image_alone or is_installed_by_image_alone(contract):
            plans.append(plan)
            continue

        def resolve_once(one: Plan, contract: Contract = contract) -> Plan:
            options = {**resolve_options, "find_fault": make_fault_finder(facts, contract)}
            return call_or_refuse(lambda: resolve(host, one.replace(resolved=""), contract, **options))

        def is_accepted(one: Plan, contract: Contract = contract) -> bool:
            return not judge_plan(one, contract)

        ask_once = ask_index_once(resolve_once, has_local_torch)

        def resolve_plan(one: Plan, once: Callable[[Plan], Plan] = ask_once) -> Plan:
            return once(one) if is_glibc_stated else resolve_for_newer_glibc(one, once, find_wheels)

        if plan.verdict == "plan" and choose_again is not None:
            free = [word for word, value in (("torch", request.torch), ("python", request.python)) if not value]
            free += ["build"] if request.torch and "+" not in request.torch else []
            plan = resolve_or_fall_back(
                plan,
                choose_again,
                resolve_plan,
                free,
                list_folder_wheels(host, resolve_options),
                find_wheels,
                is_accepted,
                make_torch_finder(host, resolve_options),
            )
        elif plan.verdict == "plan":
            plan = resolve_plan(plan)
        if plan.lock:
            plan = _make_lock_steps(host, plan, contract, facts, resolve_options)
            plan = plan.replace(options=plan.options | _source_options(resolve_options))
        if plan.verdict == "plan" and not plan.lock and not plan.resolved:
            plan = plan.replace(resolved=unresolved_reason or "not resolved here")
        plans.append(plan)
    return result.replace(plans=tuple(plans))


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
