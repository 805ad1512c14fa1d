"""An environment variable hides every GPU.

CUDA_VISIBLE_DEVICES decides which GPUs a process sees. Empty or ``-1`` hides them all. So does a first entry
that names no GPU of this machine (``99``, ``abc``, the UUID of another machine's card): CUDA reads the list
from the left, stops at the first entry that it cannot place, and says nothing. An entry that is there twice
is worse: CUDA does not start. CUDA_DEVICE_ORDER does the same where its value is not one of the two it knows.

A stale export in a shell profile, a scheduler's variable copied to another machine, or a scheduler that
gave the job no GPU are the usual reasons. Entries may be indices, full UUIDs or unambiguous beginnings of
UUIDs, but not a mixture.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement
from gpuready.rules import job_request, visible_gpus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


CODE = "GPU002"
SEVERITY = "error"
READS = ("gpu.count", "visibility.cuda", "gpu.uuid", "job.wants")
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
    return Finding(
        CODE,
        SEVERITY,
        _describe_hidden_gpus(table),
        found=(facts.fact("visibility.cuda"), facts.fact("gpu.count"), facts.fact("gpu.uuid")),
        needs=(Requirement("visibility.cuda", "*", cite="CUDA C++ Programming Guide, CUDA environment variables"),),
        so="torch.cuda.device_count() is 0, and nothing says why",
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
        f"name GPUs that are here: CUDA_VISIBLE_DEVICES={visible_gpus.visible_devices_value(facts, (alike or all_gpus)[:8])}"
    )
