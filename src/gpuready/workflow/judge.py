"""The judge of check, plan and fix: check asks whether any versions fit, and a plan's result is judged by check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from gpuready import catalog, rules
from gpuready.catalog.torch import find_torch_build, find_torch_release
from gpuready.check.evaluate import judge
from gpuready.model import NOT_STATED, Contract, Fact, Facts, Finding, Report, Requirement

if TYPE_CHECKING:
    from gpuready.model.plan import Plan, PlanConflict
    from gpuready.plan.deployment import PlanJudge


VERSION_FAMILIES = ("GPU", "DRV", "PKG", "SYS", "MEM", "CAP", "BLD018")
STEP_CODES = ("PKG002", "CAP009")
"""What is not installed yet: the plan's own steps bring it."""


def judge_contract(facts: Facts, contract: Contract, ignore: Mapping[str, str], strict: bool) -> Report:
    """Judge facts by every rule that applies; of a machine that is only described, what is open is tried."""
    option_list = None
    if facts.otherwise == NOT_STATED:
        from gpuready.plan.candidates import unstated_fact_options as candidates

        option_list = candidates(facts, contract)
    return judge(
        rules.applicable_rules(facts),
        facts,
        contract,
        ignore=ignore,
        strict=strict,
        catalog=catalog.catalog_date(),
        options=option_list,
    )


def judge_with_plan(facts: Facts, contract: Contract, ignore: Mapping[str, str], strict: bool) -> Report:
    """Judge a machine; where it is only described and nothing is wrong, also whether any versions fit it."""
    report = judge_contract(facts, contract, ignore, strict)
    if facts.otherwise != NOT_STATED or any(finding.severity == "error" for finding in report.findings):
        return report
    found = _unknown_versions_fact(facts, contract) or _conflict_fact(find_plan_conflict(facts, contract))
    return judge_contract(facts.with_facts(found), contract, ignore, strict) if found else report


def find_plan_conflict(facts: Facts, contract: Contract) -> PlanConflict | None:
    """Return why nothing can be planned with what is stated; None where something can."""
    from gpuready.plan.choose import choose_plan
    from gpuready.plan.platform import PlanRequest

    stated = {key: str(facts.value_if_known(key) or "") for key in ("package.torch", "python.version")}
    sources = {key: facts.fact(key).source for key in stated if key in facts}
    request = PlanRequest(
        torch=stated["package.torch"],
        python=stated["python.version"],
        torch_source=sources.get("package.torch", ""),
        python_source=sources.get("python.version", ""),
    )
    plan = choose_plan(facts, [contract], request, make_plan_judge(facts))
    return plan.conflicts[0] if plan.verdict != "plan" else None


def make_plan_judge(facts: Facts) -> PlanJudge:
    """Return a function that checks the environment of a plan on this machine, and returns what speaks against it."""
    from gpuready.plan.change import end_state_facts

    def judge(plan: Plan, contract: Contract) -> list[Finding]:
        own = Requirement(f"package.{contract.distribution or contract.framework}", "*", cite=contract.origin)
        needed = contract.replace(needs=(*contract.needs, own))
        report = judge_contract(end_state_facts(facts, plan), needed, {}, False)
        return [f for f in report.findings if f.severity == "error" and is_about_versions(f)]

    return judge


def make_fault_finder(facts: Facts, contract: Contract) -> Callable[[Plan], PlanConflict | None]:
    """Return a function that says what a check would hold against a lock."""
    from gpuready.plan.search_space import describe_objections

    judge_plan = make_plan_judge(facts)

    def find_fault(locked: Plan) -> PlanConflict | None:
        objections = judge_plan(locked, contract)
        return describe_objections(objections) if objections else None

    return find_fault


def is_about_versions(finding: Finding) -> bool:
    """Whether an error is answered by other versions or another machine, and not by a step on this one."""
    return finding.code.startswith(VERSION_FAMILIES) and finding.code not in STEP_CODES


def _unknown_versions_fact(facts: Facts, contract: Contract) -> Fact | None:
    """Whether versions fit is not known of an unknown release, nor on a platform that the catalogue has no torch for."""
    from gpuready.contracts.catalogued_release import describe_unknown_release

    gap = describe_unknown_release(contract) or _describe_unknown_torch(facts, contract)
    return Fact("requirements.conflict", None, "the catalogue", "stated", gap) if gap else None


def _describe_unknown_torch(facts: Facts, contract: Contract) -> str:
    from gpuready.plan.platform import lacks_catalogued_torch

    platform = facts.value_if_known("platform.name")
    version, _, label = str(facts.value_if_known("package.torch") or "").partition("+")
    if version and find_torch_release(version) is None:
        return f"the catalogue does not know torch {version}"
    arch = str(facts.value_if_known("os.arch") or "x86_64")
    if label.startswith("cu") and find_torch_build(version, label, arch) is None:
        return f"the catalogue does not know torch {version} built for {label}"
    if lacks_catalogued_torch(facts, contract):
        return f"the catalogue has no torch for {platform} to judge versions by"
    if platform == "rocm" and "rocm" in contract.platforms and contract.pinned_torch:
        if _has_fitting_image(facts, contract):
            return ""
        return (
            f"the wheels of {contract.framework} on the default index are for CUDA: for ROCm its project has an image"
        )
    return ""


def _has_fitting_image(facts: Facts, contract: Contract) -> bool:
    """Whether the framework's project has an image for this machine, which brings its own torch and Python."""
    from gpuready.plan.deployment import find_own_image

    is_open = all(facts.value_if_known(key) is None for key in ("package.torch", "python.version"))
    return is_open and find_own_image(facts, contract) is not None


def _conflict_fact(conflict: PlanConflict | None) -> Fact | None:
    if conflict is None:
        return None
    needs = tuple({"key": n.key, "want": n.want, "cite": n.cite} for n in conflict.needs)
    return Fact("requirements.conflict", {"says": conflict.says, "needs": needs}, "the plan", "stated")
