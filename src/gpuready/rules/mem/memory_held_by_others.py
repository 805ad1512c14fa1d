"""Some memory of a GPU is used by other processes.

## What it checks
Whether more than 1 GiB and more than 5 % of a GPU's memory is in use before the job starts. It is a warning,
and an error if the stated model's weights need more than what is free. Processes of other containers, and on
shared machines of other users, are not visible: then only the amount is shown.

## Why it matters
The job has that much less memory. The user may be another job, an open notebook, a rank of an earlier run, or
a desktop.

## How to fix
Wait, choose another GPU, or end the process if it is yours. Ask its owner first; do not end processes that
you do not know.

## References
- NVML API, nvmlDeviceGetMemoryInfo and nvmlDeviceGetComputeRunningProcesses
"""

from typing import Any

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import gpu_health, job_request, visible_gpus

CODE = "MEM002"
SEVERITY = "warning"
READS = (*visible_gpus.READS, "gpu.memory", "gpu.free", "gpu.processes", "job.*")
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {
    "gpu.count": 1,
    "gpu.visible": (0,),
    "gpu.memory": (85_520_809_984,),
    "gpu.free": (45_520_809_984,),
    "gpu.processes": ({"gpu": 0, "pid": 4711, "used": 39 << 30, "user": "ada", "command": "python train.py"},),
}
HEALTHY = BROKEN | {"gpu.free": (85_000_000_000,), "gpu.processes": ()}
GIB = 1 << 30


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms or not visible_gpus.list_visible_gpus(facts):
        return None
    if facts.fact("gpu.memory").gap and gpu_health.is_gap_excused(
        facts, "gpu.memory"
    ):  # it is memory shared with the processor
        return None
    total, free = visible_gpus.fact_per_gpu(facts, "gpu.memory"), visible_gpus.fact_per_gpu(facts, "gpu.free")
    used = {i: total[i] - free[i] for i in total}
    occupied = {i: u for i, u in used.items() if u > GIB and u > total[i] / 20}
    if not occupied:
        return None
    short = _free_memory_need(facts, total, free)
    amounts = {index: f"{size / GIB:.1f} GiB" for index, size in occupied.items()}
    return make_finding(
        f"other processes use memory of {visible_gpus.describe_gpus(facts, occupied, amounts)}",
        found=tuple(facts.fact(key) for key in ("gpu.free", "gpu.memory", "gpu.processes")),
        needs=(short or Requirement("gpu.free", "*", level="recommended", cite="the job can use only free memory"),),
        so=f"the job has less memory: {visible_gpus.join_names(_describe_holders(facts, occupied))}",
        fix=tuple(_free_memory_steps(facts, occupied, total)),
        severity="error" if short else SEVERITY,
    )


def _free_memory_need(facts: Facts, total: dict[int, Any], free: dict[int, Any]) -> Requirement | None:
    """Return a need if the weights fit into the total memory but not the free memory; else MEM001 reports it."""
    weights, count = job_request.estimate_weight_bytes(facts), job_request.job_gpu_count(facts)
    if weights is None or job_request.offloads_weights(facts) or (count or 0) > len(total):
        return None
    size, how = weights
    there = sum(sorted(total.values(), reverse=True)[:count])
    if not sum(sorted(free.values(), reverse=True)[:count]) < size <= there:
        return None
    return Requirement("gpu.free", f">={size / 1e9:.1f}GB", cite=f"{how}; over all GPUs together")


def _describe_holders(facts: Facts, occupied: dict[int, int]) -> list[str]:
    """Describe the processes that hold the memory, as far as visible, and memory without a visible process."""
    rows = [r for r in facts.value_if_known("gpu.processes") or () if r.get("gpu") in occupied]
    named = [_describe_process(row) for row in rows if row.get("pid")]
    unseen = sum(occupied.values()) - sum(row.get("used") or 0 for row in rows)
    # Contexts and the driver use memory that is not attributed to a process.
    if unseen > GIB * len(occupied) and not any(row.get("used") is None for row in rows):
        named.append(f"{unseen >> 20} MiB used by processes not visible here")
    return named or ["the processes are not visible here"]


def _describe_process(row: dict[str, Any]) -> str:
    who = f" of {row['user']}" if row.get("user") else ""
    what = f" ({str(row['command'])[:40]})" if row.get("command") else ""
    much = f", {row['used'] >> 20} MiB" if isinstance(row.get("used"), int) else ""
    return f"process {row['pid']}{who}{what} on GPU {row['gpu']}{much}"


def _free_memory_steps(facts: Facts, occupied: dict[int, int], total: dict[int, Any]) -> list[FixStep]:
    empty = [index for index in total if index not in occupied]
    steps = (
        [FixStep(f"show only the other GPUs: CUDA_VISIBLE_DEVICES={visible_gpus.visible_devices_value(facts, empty)}")]
        if empty
        else []
    )
    return [*steps, FixStep("wait for the process, or end it if it is yours")]
