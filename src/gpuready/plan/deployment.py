"""Add what a plan needs to be written as a file: image, indexes, variables, machine sizes."""

from __future__ import annotations

from gpuready.catalog import indexes
from gpuready.contracts import variables as wishes
from gpuready.model import Contract, Fact, Facts
from gpuready.model.plan import Plan
from gpuready.plan import images

SIZE_FACTS = {"gpus": "gpu.count", "cpus": "host.cores_usable", "memory": "memory.total"}


def add_deployment(plan: Plan, contract: Contract, facts: Facts) -> Plan:
    """Return the plan with everything its files need; unchanged if there is no environment."""
    if plan.verdict != "plan":
        return plan
    ready = plan.replace(
        indexes=index_addresses(plan),
        host=machine_sizes(facts),
        variables=plan.variables or planned_variables(plan, contract, facts),
    )
    return images.add_container_image(ready, facts)


def index_addresses(plan: Plan) -> dict[str, str]:
    """Return the indexes that the plan uses, besides the default one."""
    index_names = {plan.index, *(one.index for one in plan.lock)} - {"", indexes.DEFAULT_INDEX}
    return {name: indexes.index_url(name) for name in sorted(index_names) if name in indexes.list_indexes()}


def machine_sizes(facts: Facts) -> dict[str, int]:
    """Return the machine sizes that a scheduler is asked for."""
    known = {name: facts.value_if_known(key) for name, key in SIZE_FACTS.items()}
    limit = facts.value_if_known("memory.limit")
    if limit and known["memory"]:
        known["memory"] = min(limit, known["memory"])
    return {name: int(value) for name, value in known.items() if value}


def planned_variables(plan: Plan, contract: Contract, facts: Facts) -> dict[str, str]:
    """Return the contract's variables, under the names that the planned torch reads."""
    torch = [Fact(key, plan.torch, "planned", "stated") for key in ("package.torch", "torch.version")]
    settings = wishes.framework_settings(facts.with_facts(*torch), contract, None, {})
    return {one.name: one.value for one in settings.variables}
