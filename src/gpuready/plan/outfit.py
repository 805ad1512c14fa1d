"""Add what a plan needs to be written as a file: image, indexes, variables, machine sizes."""

from __future__ import annotations

from gpuready.catalog import indexes
from gpuready.contracts import variables as wishes
from gpuready.model import Fact
from gpuready.plan import images

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts
    from gpuready.planned import Plan

SIZES = {"gpus": "gpu.count", "cpus": "host.cores_usable", "memory": "memory.total"}


def outfitted(plan: Plan, contract: Contract, facts: Facts) -> Plan:
    """Return the plan with everything its files need; unchanged if there is no environment."""
    if plan.verdict != "plan":
        return plan
    ready = plan.but(
        indexes=addresses(plan),
        host=sizes(facts),
        variables=plan.variables or variables(plan, contract, facts),
    )
    return images.standing(ready, facts)


def addresses(plan: Plan) -> dict[str, str]:
    """Return the indexes that the plan uses, besides the default one."""
    named = {plan.index, *(one.index for one in plan.lock)} - {"", indexes.DEFAULT}
    return {name: indexes.url(name) for name in sorted(named) if name in indexes.names()}


def sizes(facts: Facts) -> dict[str, int]:
    """Return the machine sizes that a scheduler is asked for."""
    known = {name: facts.known(key) for name, key in SIZES.items()}
    limit = facts.known("memory.limit")
    if limit and known["memory"]:
        known["memory"] = min(limit, known["memory"])
    return {name: int(value) for name, value in known.items() if value}


def variables(plan: Plan, contract: Contract, facts: Facts) -> dict[str, str]:
    """Return the contract's variables, under the names that the planned torch reads."""
    torch = [Fact(key, plan.torch, "planned", "stated") for key in ("package.torch", "torch.version")]
    told = wishes.settings(facts.also(*torch), contract, None, {})
    return {one.name: one.value for one in told.variables}
