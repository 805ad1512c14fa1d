"""The machine has less memory than the weights of the model need.

## What it checks
The memory of the machine, or the limit of its container (cgroup), against the size of the weights in the
job's precision. It is a warning. Nothing is reported with a device map, because safetensors then loads
directly to the GPU.

## Why it matters
A model that is built on the CPU first, or offloaded, needs all of its weights in host memory, once per
process. The kernel kills the process: ``Killed``, exit code -9 or 137, without a message from Python.

## How to fix
Use a device map or load in parts, quantize, or give the machine or container more memory.

## References
- Linux kernel documentation, cgroup v2, memory.max
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import job_request

CODE = "MEM003"
SEVERITY = "warning"
READS = ("memory.total", "memory.limit", "job.*")
REQUIRED_FACTS = ("job.parameters",)
BROKEN = {"job.parameters": 70_000_000_000, "job.wants": ("bf16",), "memory.total": 2 << 40, "memory.limit": 64 << 30}
HEALTHY = BROKEN | {"memory.limit": 512 << 30}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    weights = job_request.estimate_weight_bytes(facts)
    if "cuda" not in contract.platforms or weights is None or job_request.uses_device_map(facts):
        return None
    size, how = weights
    key = _exceeded_bound(facts, size)
    if key is None:
        return None
    what = "the memory limit here" if key == "memory.limit" else "the memory of this machine"
    return make_finding(
        f"{what} is {facts.value(key) / 1e9:.0f} GB, but the model's weights need {size / 1e9:.0f} GB",
        found=(facts.fact(key), facts.fact("job.parameters")),
        needs=(Requirement(key, f">={size / 1e9:.1f}GB", level="recommended", cite=how),),
        so="the kernel kills a process that builds the model in host memory, without a message",
        fix=(
            FixStep("use a device map, or load the model in parts onto the GPUs"),
            FixStep("give the machine or the container more memory"),
        ),
    )


def _exceeded_bound(facts: Facts, size: int) -> str | None:
    """Return the bound that is known to be too low; raise Unknown if one that could not be read might be."""
    bounds = [key for key in ("memory.limit", "memory.total") if key in facts]
    low = [key for key in bounds if (amount := facts.value_if_known(key)) is not None and amount < size]
    if not low:
        for key in bounds:
            facts.value(key)
    return low[0] if low else None
