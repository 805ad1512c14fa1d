"""The power limit of a GPU is set below its default.

## What it checks
The configured power limit against the default of the GPU. Between 70 % and 90 % is information, less is a
warning. Laptop GPUs change their limit themselves and are not checked.

## Why it matters
Under load the GPU runs at lower clocks. 10 % less power is hardly noticeable; half the power costs much of
the speed. One GPU with a lower limit slows every job that uses all of them.

## How to fix
If it is not intended, set the limit back as root with ``nvidia-smi -pl WATTS``. The setting lasts until the
driver is reloaded.

## References
- nvidia-smi manual, power limits
"""

from collections.abc import Iterator

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import gpu_health, visible_gpus

CODE = "GPU012"
SEVERITY = "warning"
READS = (*gpu_health.READS, "gpu.power_limit", "gpu.power_limit_default")
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {
    "gpu.count": 1,
    "gpu.visible": (0,),
    "gpu.name": ("NVIDIA H100 80GB HBM3",),
    "gpu.power_limit": (350,),
    "gpu.power_limit_default": (700,),
}
HEALTHY = BROKEN | {"gpu.power_limit": (650,)}
CITE = "nvidia-smi manual, power limits"
INFO_SHARE, WARNING_SHARE = 0.9, 0.7


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if gpu_health.is_not_applicable(
        facts, contract, "gpu.power_limit", "gpu.power_limit_default"
    ) or not visible_gpus.list_visible_gpus(facts):
        return None
    limits, own = (
        gpu_health.reported_values(facts, "gpu.power_limit"),
        gpu_health.reported_values(facts, "gpu.power_limit_default"),
    )
    shares = {i: limits[i] / own[i] for i in limits if own.get(i)}
    low = {
        i: f"{limits[i]} of {own[i]} W"
        for i, share in shares.items()
        if share < INFO_SHARE and not gpu_health.gpu_name_contains(facts, i, "Laptop", "Max-Q", "Mobile")
    }
    if not low:
        gpu_health.require_reported(facts, "gpu.power_limit")
        gpu_health.require_reported(facts, "gpu.power_limit_default")
        return None
    return make_finding(
        f"the power limit is lowered on {visible_gpus.describe_gpus(facts, low, low)}",
        found=(facts.fact("gpu.power_limit"), facts.fact("gpu.power_limit_default")),
        needs=(Requirement("gpu.power_limit", f">={min(own[i] for i in low)}", level="recommended", cite=CITE),),
        so="clocks are lower under load; in a multi-GPU job the slowest GPU sets the speed",
        fix=tuple(_restore_limit_steps({i: own[i] for i in low})),
        severity=SEVERITY if min(shares[i] for i in low) < WARNING_SHARE else "info",
    )


def _restore_limit_steps(own: dict[int, int]) -> Iterator[FixStep]:
    """Yield one step for each default limit, which depends on the GPU model."""
    for watts in dict.fromkeys(own.values()):
        where = gpu_health.join_indices([index for index, limit in own.items() if limit == watts])
        yield FixStep(f"if not intended, set it back: nvidia-smi -i {where} -pl {watts}", note="needs root")
