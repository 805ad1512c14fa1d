"""Group frameworks that can share an environment, and explain why others cannot."""

from collections.abc import Sequence

from gpuready.contracts.pin_conflicts import conflicts_between, required_pins
from gpuready.model import Contract, Facts, Requirement
from gpuready.model.plan import Plan, PlanConflict
from gpuready.plan.choose import choose_plan
from gpuready.plan.platform import PlanRequest

MAX_LISTED_PACKAGES = 3
"""Number of conflicting packages that are listed; the rest is counted."""


def group_contracts(
    facts: Facts, contracts: Sequence[Contract], request: PlanRequest
) -> tuple[list[list[Contract]], list[PlanConflict], dict[str, Plan]]:
    """Group contracts into as few environments as possible; return groups, conflicts and shared plans."""
    groups: list[list[Contract]] = []
    common: dict[str, Plan] = {}
    conflicts: list[PlanConflict] = []
    for contract in contracts:
        for group in groups:
            clashing = [c for other in group for c in _find_pin_conflict(other, contract)]
            plan = None if clashing else choose_plan(facts, [merge_contracts([*group, contract])], request)
            if plan is not None and plan.verdict == "plan":
                group.append(contract)
                common |= {one.name: plan for one in group}
                break
            conflicts += clashing or [_describe_group_conflict(group, contract, plan)]
        else:
            groups.append([contract])
    return groups, conflicts, common


def merge_contracts(contracts: Sequence[Contract]) -> Contract:
    """Combine the needs of several contracts into one."""
    first, *rest = contracts
    platforms = tuple(p for p in first.platforms if all(p in other.platforms for other in rest))
    needs = tuple(dict.fromkeys(need for contract in contracts for need in contract.needs))
    name = " with ".join(contract.framework for contract in contracts)
    return first.replace(framework=name, needs=needs, platforms=platforms or first.platforms)


def _find_pin_conflict(one: Contract, other: Contract) -> list[PlanConflict]:
    """Return the contradicting pins of two contracts as one conflict; empty if none do."""
    clashes = list(conflicts_between(required_pins(one), required_pins(other)))
    if not clashes:
        return []
    names = [package for package, _, _ in clashes]
    listed = ", ".join(names[:MAX_LISTED_PACKAGES]) + (
        f" and {len(names) - MAX_LISTED_PACKAGES} more" if len(names) > MAX_LISTED_PACKAGES else ""
    )
    needs = [need for clash in clashes[:MAX_LISTED_PACKAGES] for need in _conflicting_needs(one, other, *clash)]
    return [PlanConflict(f"no environment holds both {one.name} and {other.name}: {listed}", (), tuple(needs))]


def _conflicting_needs(
    one: Contract, other: Contract, package: str, a: dict[str, str], b: dict[str, str]
) -> list[Requirement]:
    key = package if "." in package else f"package.{package}"
    return [
        Requirement(key, a["want"], cite=f"{one.name}: {a['cite']}"),
        Requirement(key, b["want"], cite=f"{other.name}: {b['cite']}"),
    ]


def _describe_group_conflict(group: Sequence[Contract], contract: Contract, plan: Plan | None) -> PlanConflict:
    why = plan.conflicts[0] if plan is not None and plan.conflicts else PlanConflict("nothing fits both")
    names = " and ".join(one.name for one in (*group, contract))
    return why.replace(says=f"no environment holds both {names}: {why.says}")
