"""A GPU is in MIG mode, and the job has no instance of it.

## What it checks
Whether a GPU with Multi-Instance GPU (MIG) turned on has an instance that this process can open. It is an
error if the job needs that GPU, else a warning. If there are several instances and CUDA_VISIBLE_DEVICES names
none, the rule lists them as information.

## Why it matters
With MIG on, CUDA uses instances only, so a GPU without an instance cannot be used although nvidia-smi lists
it with all its memory. Without CUDA_VISIBLE_DEVICES a process gets the first instance that CUDA finds.
Instances cannot use NVLink, so multi-GPU training needs MIG off.

## How to fix
As root, create an instance with ``nvidia-smi mig``, or turn MIG off with ``nvidia-smi -mig 0``. Both need an
idle GPU.

## References
- NVIDIA Multi-Instance GPU User Guide
"""

from typing import Any

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import gpu_health, visible_gpus

CODE = "GPU007"
SEVERITY = "error"
READS = (*gpu_health.READS, "gpu.mig", "gpu.mig_devices", "visibility.cuda")
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {
    "gpu.count": 1,
    "gpu.visible": (0,),
    "gpu.name": ("NVIDIA A100-SXM4-80GB",),
    "gpu.mig": ("on",),
    "gpu.mig_devices": (),
}
HEALTHY = BROKEN | {"gpu.mig_devices": ({"gpu": 0, "uuid": "MIG-7c1b5a52-1111-5222-8333-444444444444"},)}
CITE = "NVIDIA Multi-Instance GPU User Guide"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if gpu_health.is_not_applicable(
        facts, contract, "gpu.mig", "gpu.mig_devices"
    ) or not visible_gpus.list_visible_gpus(facts):
        return None
    split = [index for index, mode in gpu_health.reported_values(facts, "gpu.mig").items() if mode == "on"]
    if not split:
        gpu_health.require_reported(facts, "gpu.mig")
        return None
    rows = [row for row in facts.value("gpu.mig_devices") or () if row.get("gpu") in split]
    empty = [index for index in split if all(row.get("gpu") != index for row in rows)]
    return _no_instance_finding(facts, empty) if empty else _unnamed_instance_finding(facts, split, rows)


def _no_instance_finding(facts: Facts, empty: list[int]) -> Finding:
    which = gpu_health.join_indices(empty)
    return make_finding(
        f"no MIG instance on {visible_gpus.describe_gpus(facts, empty)}, although MIG is on",
        found=(facts.fact("gpu.mig"), facts.fact("gpu.mig_devices")),
        needs=(Requirement("gpu.mig_devices", "*", cite=CITE),),
        so="CUDA does not count the GPU: no CUDA-capable device is detected",
        fix=(
            *gpu_health.hide_gpus_steps(facts, empty),
            FixStep(f"create one instance of the whole GPU: nvidia-smi mig -i {which} -cgi 0 -C", note="needs root"),
            FixStep(f"turn MIG off: nvidia-smi -i {which} -mig 0", note="needs root"),
        ),
        severity=SEVERITY if gpu_health.leaves_too_few_gpus(facts, empty) else "warning",
    )


def _unnamed_instance_finding(facts: Facts, split: list[int], rows: list[dict[str, Any]]) -> Finding | None:
    """Return an info finding if there are several instances and none is selected."""
    variable = facts.fact("visibility.cuda")
    named = str((variable.value or {}).get("value") or "").startswith("MIG-")
    if variable.gap or named or (len(rows) == 1 and len(set(visible_gpus.list_visible_gpus(facts))) == 1):
        return None
    uuids = [str(row["uuid"]) for row in rows if isinstance(row.get("uuid"), str)]
    return make_finding(
        f"only MIG instances of {visible_gpus.describe_gpus(facts, split)} can be used: name one in CUDA_VISIBLE_DEVICES"
        + (f", such as {uuids[0]}" if uuids else ""),
        found=(facts.fact("gpu.mig"), facts.fact("gpu.mig_devices"), variable),
        needs=(Requirement("visibility.cuda", "*", level="optional", cite=CITE),),
        so="a process that names no instance gets the first one, never the whole GPU",
        fix=(FixStep(f"name an instance: CUDA_VISIBLE_DEVICES={uuids[0] if uuids else 'MIG-…'}"),),
        severity="info",
    )
