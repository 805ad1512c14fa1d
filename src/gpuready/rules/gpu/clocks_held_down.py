"""The clocks of a GPU are reduced by heat or by its power supply.

## What it checks
The throttle reasons that the driver reports: software or hardware thermal slowdown, or a power brake. Lower
clocks because of idling, a configured power limit or application clocks are not reported. A hardware slowdown
without a cause is information: check again after a minute.

## Why it matters
Everything on this GPU runs at a fraction of its speed, and in a multi-GPU job all other GPUs wait for it.

## How to fix
Check fans, dust, air flow and water cooling, power cables and supplies. ``nvidia-smi -q -d
TEMPERATURE,PERFORMANCE`` shows temperatures and reasons.

## References
- NVML API, NvmlClocksEventReasons
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import gpu_health, visible_gpus

CODE = "GPU011"
SEVERITY = "warning"
READS = (*gpu_health.READS, "gpu.throttle")
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {
    "gpu.count": 1,
    "gpu.visible": (0,),
    "gpu.name": ("NVIDIA H100 80GB HBM3",),
    "gpu.throttle": ("hw_slowdown, hw_thermal",),
}
HEALTHY = BROKEN | {"gpu.throttle": ("sw_power_cap",)}
CITE = "NVML API, NvmlClocksEventReasons"

CAUSES = {"sw_thermal": "too hot", "hw_thermal": "much too hot", "hw_power_brake": "power brake"}
UNNAMED = "hardware slowdown"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if gpu_health.is_not_applicable(facts, contract, "gpu.throttle") or not visible_gpus.list_visible_gpus(facts):
        return None
    reasons = {i: _throttle_causes(str(text)) for i, text in gpu_health.reported_values(facts, "gpu.throttle").items()}
    throttled = {i: " and ".join(why) for i, why in reasons.items() if why}
    if not throttled:
        gpu_health.require_reported(facts, "gpu.throttle")
        return None
    unnamed_only = set(throttled.values()) == {UNNAMED}
    return make_finding(
        f"clocks reduced on {visible_gpus.describe_gpus(facts, throttled, throttled)}",
        found=(facts.fact("gpu.throttle"),),
        needs=(Requirement("gpu.throttle", "none", level="recommended", cite=CITE),),
        so="this GPU runs at a fraction of its speed, and other GPUs wait for it",
        fix=(
            FixStep(
                "check the cooling (fans, dust, air flow): nvidia-smi -q -d TEMPERATURE", note="needs physical access"
            ),
            FixStep("check the power cables and supplies of the machine", note="needs physical access"),
        ),
        severity="info" if unnamed_only else SEVERITY,
    )


def _throttle_causes(text: str) -> list[str]:
    """Return the causes among the throttle reasons, else the slowdown itself."""
    # NVML and nvidia-smi use the same names except for the suffix.
    words = [word.strip() for word in text.split(",")]
    causes = [CAUSES[name] for word in words if (name := word.removesuffix("_slowdown")) in CAUSES]
    return causes or ([UNNAMED] if "hw_slowdown" in words else [])
