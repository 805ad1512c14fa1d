"""Some memory of a GPU is held by other processes.

A GPU that the job would use is not empty: more than a gibibyte and more than a twentieth of its memory is
taken. The holder may be another user's job, a notebook that was never closed, a rank of an earlier run that
did not die, or a desktop. Processes of other containers, and on shared machines those of other users, cannot
be seen from here: then only the amount is told.

It is a warning, since the job may well fit beside the others; it is an error when the weights of the stated
model need more than what is free. Wait, choose another GPU, or end the holder if it is yours: ask its owner
first, and never kill what you do not know.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement
from gpuready.rules import gpu_health, job_request, visible_gpus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


CODE = "MEM002"
SEVERITY = "warning"
READS = (*visible_gpus.READS, "gpu.memory", "gpu.free", "gpu.processes", "job.*")
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
    return Finding(
        CODE,
        "error" if short else SEVERITY,
        f"others hold memory of {visible_gpus.describe_gpus(facts, occupied, amounts)}",
        found=tuple(facts.fact(key) for key in ("gpu.free", "gpu.memory", "gpu.processes")),
        needs=(
            short or Requirement("gpu.free", "*", level="recommended", cite="free memory is what the job can have"),
        ),
        so=f"the job has that much less: {visible_gpus.join_names(_describe_holders(facts, occupied))}",
        fix=tuple(_free_memory_steps(facts, occupied, total)),
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
    return named or ["the holders are not visible here"]


def _describe_process(row: dict[str, Any]) -> str:
    who = f" of {row['user']}" if row.get("user") else ""
    what = f" ({str(row['command'])[:40]})" if row.get("command") else ""
    much = f", {row['used'] >> 20} MiB" if isinstance(row.get("used"), int) else ""
    return f"process {row['pid']}{who}{what} on GPU {row['gpu']}{much}"


def _free_memory_steps(facts: Facts, occupied: dict[int, int], total: dict[int, Any]) -> list[FixStep]:
    empty = [index for index in total if index not in occupied]
    steps = (
        [FixStep(f"show only the others: CUDA_VISIBLE_DEVICES={visible_gpus.visible_devices_value(facts, empty)}")]
        if empty
        else []
    )
    return [*steps, FixStep("wait for the holder, or end it if it is yours")]
