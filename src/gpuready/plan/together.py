"""Group frameworks that can share an environment, and explain why others cannot."""

from __future__ import annotations

from gpuready.contracts.sharing import between, pins
from gpuready.model import Need
from gpuready.plan.choose import choose
from gpuready.planned import Conflict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuready.model import Contract, Facts
    from gpuready.plan.ground import Asked
    from gpuready.planned import Plan

MOST = 3
"""Number of conflicting packages that are listed; the rest is counted."""


def share(
    facts: Facts, contracts: Sequence[Contract], asked: Asked
) -> tuple[list[list[Contract]], list[Conflict], dict[str, Plan]]:
    """Group contracts into as few environments as possible; return groups, conflicts and shared plans."""
    groups: list[list[Contract]] = []
    common: dict[str, Plan] = {}
    conflicts: list[Conflict] = []
    for contract in contracts:
        for group in groups:
            clashing = [c for other in group for c in _clash(other, contract)]
            plan = None if clashing else choose(facts, [merged([*group, contract])], asked)
            if plan is not None and plan.verdict == "plan":
                group.append(contract)
                common |= {one.name: plan for one in group}
                break
            conflicts += clashing or [_apart(group, contract, plan)]
        else:
            groups.append([contract])
    return groups, conflicts, common


def merged(contracts: Sequence[Contract]) -> Contract:
    """Combine the needs of several contracts into one."""
    first, *rest = contracts
    platforms = tuple(p for p in first.platforms if all(p in other.platforms for other in rest))
    needs = tuple(dict.fromkeys(need for contract in contracts for need in contract.needs))
    name = " with ".join(contract.framework for contract in contracts)
    return first.but(framework=name, needs=needs, platforms=platforms or first.platforms)


def _clash(one: Contract, other: Contract) -> list[Conflict]:
    """Return the contradicting pins of two contracts as one conflict; empty if none do."""
    found = list(between(pins(one), pins(other)))
    if not found:
        return []
    names = [package for package, _, _ in found]
    listed = ", ".join(names[:MOST]) + (f" and {len(names) - MOST} more" if len(names) > MOST else "")
    needs = [need for clash in found[:MOST] for need in _needs(one, other, *clash)]
    return [Conflict(f"no environment holds both {one.name} and {other.name}: {listed}", (), tuple(needs))]


def _needs(one: Contract, other: Contract, package: str, a: dict[str, str], b: dict[str, str]) -> list[Need]:
    key = package if "." in package else f"package.{package}"
    return [
        Need(key, a["want"], cite=f"{one.name}: {a['cite']}"),
        Need(key, b["want"], cite=f"{other.name}: {b['cite']}"),
    ]


def _apart(group: Sequence[Contract], contract: Contract, plan: Plan | None) -> Conflict:
    why = plan.conflicts[0] if plan is not None and plan.conflicts else Conflict("nothing fits both")
    names = " and ".join(one.name for one in (*group, contract))
    return why.but(says=f"no environment holds both {names}: {why.says}")
