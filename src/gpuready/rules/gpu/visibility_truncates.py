"""CUDA drops some entries of CUDA_VISIBLE_DEVICES without a message.

## What it checks
Whether every entry of CUDA_VISIBLE_DEVICES matches a GPU of this machine. CUDA reads the list from the left
and stops at the first invalid entry, so valid entries after it are dropped too: ``0,99,1`` shows one GPU, not
two.

## Why it matters
The job runs on fewer GPUs than intended. A launcher that starts one process per entry fails later with
``invalid device ordinal``.

## How to fix
Correct the list, or unset the variable. Name GPUs by index (from 0, in the order that CUDA_DEVICE_ORDER sets)
or by UUID, not both.

## References
- CUDA Programming Guide, 5.2 CUDA Environment Variables
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import job_request, visible_gpus
from gpuready.rules.gpu.visibility_hides_gpus import name_gpus_step, quote_device_entry

CODE = "GPU003"
SEVERITY = "error"
READS = ("gpu.count", "visibility.cuda", "gpu.uuid", "job.wants")
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {
    "gpu.count": 1,
    "visibility.cuda": {"value": "0,99", "shown": (0,), "ignored": ("99",), "why": "'99' is no GPU of this machine"},
    "gpu.uuid": ("GPU-5b7a0f6e-1",),
}
HEALTHY = {
    "gpu.count": 1,
    "visibility.cuda": {"value": "0", "shown": (0,), "ignored": (), "why": "CUDA_VISIBLE_DEVICES names 1 of 1"},
    "gpu.uuid": ("GPU-5b7a0f6e-1",),
}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms or job_request.job_asks_for(facts, "cpu") or not facts.value("gpu.count"):
        return None
    table = facts.value("visibility.cuda")
    if not table or not table.get("ignored") or not table.get("shown"):
        return None
    dropped = visible_gpus.join_names([quote_device_entry(entry) for entry in table["ignored"]])
    visible_count = len(table["shown"])
    return make_finding(
        f"some entries of CUDA_VISIBLE_DEVICES (value {quote_device_entry(table.get('value'))}) are dropped: {dropped}",
        found=(facts.fact("visibility.cuda"), facts.fact("gpu.count"), facts.fact("gpu.uuid")),
        needs=(Requirement("visibility.cuda", "*", cite="CUDA Programming Guide, CUDA Environment Variables"),),
        so=f"{table.get('why')}: the job sees {visible_count} of {visible_count + len(table['ignored'])} named GPUs",
        fix=(
            FixStep(
                f"keep the valid entries: CUDA_VISIBLE_DEVICES={visible_gpus.visible_devices_value(facts, table['shown'])}"
            ),
            name_gpus_step(facts, table),
        ),
    )
