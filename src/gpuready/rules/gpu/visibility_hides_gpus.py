"""An environment variable hides every GPU.

## What it checks
Whether CUDA_VISIBLE_DEVICES or CUDA_DEVICE_ORDER leaves the process without a GPU. An empty value or ``-1``
hides all GPUs. So does a first entry that matches no GPU of this machine (``99``, the UUID of another
machine's card): CUDA reads the list from the left and stops at the first invalid entry. A duplicate entry, or
an unknown value of CUDA_DEVICE_ORDER, makes CUDA fail to start.

## Why it matters
``torch.cuda.device_count()`` is 0 and no message explains it. Usual reasons: a stale export in a shell
profile, a variable copied from another machine, or a scheduler that gave the job no GPU.

## How to fix
Unset CUDA_VISIBLE_DEVICES, or set it to indices or UUIDs of GPUs on this machine. Do not mix indices and
UUIDs.

## References
- CUDA Programming Guide, 5.2 CUDA Environment Variables
"""

from typing import Any

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import job_request, visible_gpus

CODE = "GPU002"
SEVERITY = "error"
READS = ("gpu.count", "visibility.cuda", "gpu.uuid", "job.wants")
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {
    "gpu.count": 2,
    "visibility.cuda": {"value": "", "shown": (), "ignored": (), "why": "CUDA_VISIBLE_DEVICES hides all GPUs"},
    "gpu.uuid": ("GPU-5b7a0f6e-1", "GPU-c00dfeed-2"),
}
HEALTHY = {
    "gpu.count": 2,
    "visibility.cuda": {"value": "0", "shown": (0,), "ignored": (), "why": "CUDA_VISIBLE_DEVICES names 1 of 2"},
    "gpu.uuid": ("GPU-5b7a0f6e-1", "GPU-c00dfeed-2"),
}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms or job_request.job_asks_for(facts, "cpu") or not facts.value("gpu.count"):
        return None
    table = facts.value("visibility.cuda")
    if not table or table.get("shown"):
        return None
    return make_finding(
        _describe_hidden_gpus(table),
        found=(facts.fact("visibility.cuda"), facts.fact("gpu.count"), facts.fact("gpu.uuid")),
        needs=(Requirement("visibility.cuda", "*", cite="CUDA Programming Guide, CUDA Environment Variables"),),
        so="torch.cuda.device_count() is 0 without any message",
        fix=(FixStep("unset CUDA_VISIBLE_DEVICES to show every GPU"), name_gpus_step(facts, table)),
    )


def _describe_hidden_gpus(table: dict[str, Any]) -> str:
    value, why = table.get("value"), str(table.get("why") or "")
    if value is None:
        return f"an environment variable hides all GPUs: {why}"
    message = f"the variable CUDA_VISIBLE_DEVICES hides all GPUs (value {quote_device_entry(value)})"
    return f"{message}: {why}" if table.get("ignored") else message


def quote_device_entry(value: object) -> str:
    """Quote a value of the environment, cut to one line."""
    text = str(value)
    return repr(text if len(text) <= 60 else text[:60] + "…")


def name_gpus_step(facts: Facts, table: dict[str, Any]) -> FixStep:
    """Name GPUs to use instead: those whose UUID starts like the bad entry, else the first ones."""
    all_gpus = list(range(facts.value("gpu.count")))
    bad = [str(entry).strip().lower() for entry in table.get("ignored") or ()]
    uuids = [str(u).lower() for u in facts.value_if_known("gpu.uuid") or ()]
    alike = [i for i, uuid in enumerate(uuids) if any(b[:8] == uuid[:8] for b in bad if b.startswith("gpu-"))]
    return FixStep(
        f"name GPUs of this machine: CUDA_VISIBLE_DEVICES={visible_gpus.visible_devices_value(facts, (alike or all_gpus)[:8])}"
    )
