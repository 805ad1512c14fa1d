"""The driver has the wrong kind of kernel modules for a GPU.

## What it checks
Whether the loaded modules (proprietary or open) support each GPU. Maxwell, Pascal and Volta (below 7.5) need
the proprietary modules. Grace Hopper and Blackwell (10.0 and above) need the open ones. Turing to Hopper work
with both. It is an error if the job needs that GPU, else a warning.

## Why it matters
The module loads and the GPU does not start. The kernel log says ``requires use of the NVIDIA open kernel
modules``, or that the GPU is not supported by open nvidia.ko. No driver serves a V100 and a B200 in one
machine.

## How to fix
Install the other kind and reboot. Distribution packages have ``open`` in their name; NVIDIA's installer takes
``-M open`` or ``-M proprietary``.

## References
- NVIDIA Driver Installation Guide, Kernel Modules
"""

from gpuready.catalog import cuda as catalogue
from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding, versions
from gpuready.rules import gpu_health, visible_gpus
from gpuready.rules.drv.driver_dropped_gpu import driver_opened_gpus

CODE = "DRV009"
SEVERITY = "error"
READS = (*gpu_health.READS, "gpu.capability", "gpu.memory", "driver.kind")
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {
    "gpu.count": 1,
    "gpu.visible": (0,),
    "gpu.name": ("NVIDIA GeForce RTX 5090",),
    "gpu.capability": ("12.0",),
    "driver.kind": "proprietary",
}
HEALTHY = BROKEN | {"driver.kind": "open"}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if (
        gpu_health.is_not_applicable(facts, contract, "driver.kind")
        or not visible_gpus.list_visible_gpus(facts)
        or driver_opened_gpus(facts)
    ):
        return None
    wanted = {
        i: _required_module_kind(facts, i, str(c))
        for i, c in visible_gpus.fact_per_gpu(facts, "gpu.capability").items()
    }
    loaded = facts.value("driver.kind") if any(wanted.values()) else None
    wrong = [i for i, kind in wanted.items() if loaded and kind and kind != loaded]
    if not wrong:
        return None
    kind = wanted[wrong[0]]
    cite = catalogue.find_cuda_rule("open_kernel_modules")["source"][0]
    return make_finding(
        f"the {loaded} kernel modules are loaded, which do not support {visible_gpus.describe_gpus(facts, wrong)}",
        found=tuple(facts.fact(key) for key in ("driver.kind", "gpu.capability", "gpu.name")),
        needs=(Requirement("driver.kind", kind, cite=cite),),
        so="the module loads and the GPU does not start; nvidia-smi finds no device",
        fix=(
            FixStep(f"install the {kind} kernel modules of the driver and reboot", note="needs root"),
            *gpu_health.hide_gpus_steps(facts, wrong),
        ),
        severity=SEVERITY if gpu_health.leaves_too_few_gpus(facts, wrong) else "warning",
    )


def _required_module_kind(facts: Facts, index: int, capability: str) -> str:
    """Return the only kind of modules that supports a GPU; empty if both do, or it has a driver of its own."""
    rule, cubins = catalogue.find_cuda_rule("open_kernel_modules"), catalogue.find_cuda_rule("cubin_compat")
    if capability in cubins["integrated"]:
        return ""
    names = facts.value_if_known("gpu.name") or ()
    if catalogue.needs_open_modules(capability, str(names[index]) if index < len(names) else ""):
        return "open"
    supports_both = versions.major_minor(capability) >= versions.major_minor(rule["open_from"])
    return "" if supports_both else "proprietary"
