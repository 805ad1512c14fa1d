"""What to type where an install has no plan on this machine."""

from __future__ import annotations

from gpuready import contracts
from gpuready.model import Facts
from gpuready.model.plan import Plan
from gpuready.plan.limits import is_for_gpus_alone


def suggest_elsewhere(framework: str, chosen: Plan, facts: Facts | None, on: str | None, wants: str | None) -> str:
    """Return the command that goes on: without a GPU, for a machine that has one, or for the CPU where the framework takes one."""
    command = f"gpuready install {framework}"
    if on is not None or facts is None or facts.value_if_known("gpu.count"):
        return f"gpuready plan {framework} tells more"
    is_cpu_left = "cpu" not in (wants or "").split(",") and _runs_on_cpu(chosen)
    on_cpu = f", for this CPU: {command} --wants {','.join(filter(None, (wants, 'cpu')))}" if is_cpu_left else ""
    return f"for a machine with GPUs: {command} --on h100x8 (or another GPU){on_cpu}"


def _runs_on_cpu(chosen: Plan) -> bool:
    """Whether the framework of a plan may run on a CPU alone, by its contract; unknown is no."""
    if not contracts.has_contract(chosen.framework):
        return False
    contract = contracts.load_contract(chosen.framework, chosen.version or None, chosen.variant or None)
    return not is_for_gpus_alone(contract)
