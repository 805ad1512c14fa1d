"""The machine has less memory than the weights of the model take.

Weights pass through the memory of the host on their way to the GPU. A model that is first built on the CPU
needs all of it at once, for every process that loads its own copy; offloading keeps it there. Where the
machine, or the limit of its container, has less than the weights take in the precision that the job asks
for, the kernel ends the process: ``Killed``, exit code -9 or 137, without a message from Python.

It is a warning, since weights can also be read piece by piece: safetensors with a device map goes straight
to the GPU, and then nothing is said. The limit of the cgroup counts where there is one, not what free
shows. Use a device map or load in parts, quantise, or give the machine or the container more memory.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement
from gpuready.rules import job_request

CODE = "MEM003"
SEVERITY = "warning"
READS = ("memory.total", "memory.limit", "job.*")
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
    return Finding(
        CODE,
        SEVERITY,
        f"{what} is {facts.value(key) / 1e9:.0f} GB, and the weights of the model take {size / 1e9:.0f}",
        found=(facts.fact(key), facts.fact("job.parameters")),
        needs=(Requirement(key, f">={size / 1e9:.1f}GB", level="recommended", cite=how),),
        so="a process that builds the model in host memory is killed by the kernel without a message",
        fix=(
            FixStep("place the model with a device map, or load it in parts onto the GPUs"),
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
