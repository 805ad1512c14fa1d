"""Decide where each proof runs before anything is started: on which GPU, or why on none.

Read from facts only: a hidden, closed, occupied or full GPU is reported at once, before torch is imported.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gpuready.catalog.proofs import ProofSpec
from gpuready.model import Facts, Record
from gpuready.model.proof import SKIPPED, ProofResult
from gpuready.prove import selection

CONTEXT_BYTES = 768 << 20
"""GPU memory of a bare CUDA context, in bytes."""

MAX_RANKS = 8


class ProofTask(Record):
    """A proof that can be started: device, number of processes, and GPU memory."""

    row: Any
    device: str
    ranks: int = 1
    memory: int = 0


def place_proof(row: ProofSpec, facts: Facts, cpus: int) -> ProofTask | ProofResult | None:
    """Return the task of one row, or its result where it cannot be started; None for one that a job on the CPU does not need."""
    if selection.is_cpu_requested(facts) and row.device == "cuda":
        return None
    if _why_no_torch(facts):
        return unstarted_proof(row, "absent", _why_no_torch(facts), lacks="torch")
    if selection.is_cpu_requested(facts):
        return _place_on_cpu(row, facts, cpus)
    if why := why_no_gpu(facts):  # nothing is executed for a GPU that is not there
        return unstarted_proof(row, "absent", why, lacks="gpu")
    return _place_on_cpu(row, facts, cpus) if row.device == "cpu" else _place_on_gpu(row, facts)


def _why_no_torch(facts: Facts) -> str:
    torch = facts.fact("package.torch")
    return "torch is not installed" if torch.value is None and not torch.gap else ""


def why_no_gpu(facts: Facts) -> str:
    """Return why there is no GPU to run on; empty if there is or may be one."""
    if facts.value_if_known("platform.name") == "rocm":
        return ""  # torch calls it cuda as well
    if facts.value_if_known("gpu.count") == 0:
        return "no GPU in this machine"
    if facts.fact("gpu.count").gap or facts.fact("gpu.visible").gap:
        return ""  # unknown to the driver: torch will report it
    if not facts.value_if_known("gpu.visible"):
        table = facts.value_if_known("visibility.cuda") or {}
        value = table.get("value")
        hidden = f"CUDA_VISIBLE_DEVICES hides all GPUs (value {value!r})" if value is not None else "no GPU is visible"
        return f"{hidden}: {table['why']}" if table.get("why") else hidden
    return ""


def _place_on_cpu(row: ProofSpec, facts: Facts, cpus: int) -> ProofTask | ProofResult:
    if missing := _why_package_missing(row, facts):
        return unstarted_proof(row, "absent", missing, "cpu", row.package)
    return ProofTask(row, "cpu", max(2, min(4, cpus)) if row.ranks == 0 else row.ranks)


def _place_on_gpu(row: ProofSpec, facts: Facts) -> ProofTask | ProofResult:
    if missing := _why_package_missing(row, facts):
        return unstarted_proof(row, "absent", missing, lacks=row.package)
    if cannot := selection.why_feature_missing(row, facts):
        return unstarted_proof(row, "unsupported", cannot, lacks="gpu")
    if few := selection.why_hardware_lacks(row, facts):
        return unstarted_proof(row, SKIPPED, few)
    if shut := _why_gpu_closed(facts):
        return unstarted_proof(row, "absent", shut, lacks="gpu")
    if full := _why_gpu_full(row, facts):
        return unstarted_proof(row, SKIPPED, full)
    count = len(facts.value_if_known("gpu.visible") or (0,))
    ranks = min(MAX_RANKS, count) if row.ranks == 0 else row.ranks
    return ProofTask(row, "cuda:0", ranks, row.memory + CONTEXT_BYTES)


def _why_package_missing(row: ProofSpec, facts: Facts) -> str:
    if not row.package:
        return ""
    found = facts.fact(f"package.{row.package}")
    return f"{row.package} is not installed" if found.value is None and not found.gap else ""


def unstarted_proof(row: ProofSpec, verdict: str, why: str, device: str = "cuda", lacks: str = "") -> ProofResult:
    return ProofResult(
        name=row.name,
        verdict=verdict,
        why=why,
        device=device,
        source=row.source,
        capability=row.capability,
        executed=row.executed,
        lacks=lacks,
    )


# -- a closed or full GPU ---------------------------------------------------------------------------------


def first_gpu_index(facts: Facts) -> int:
    """Return the physical index of the GPU that torch calls cuda:0."""
    visible = facts.value_if_known("gpu.visible")
    return int(visible[0]) if visible else 0


def _first_gpu_value(facts: Facts, key: str) -> Any:
    several, at = facts.value_if_known(key) or (), first_gpu_index(facts)
    return several[at] if at < len(several) else None


def is_gpu_exclusive(facts: Facts) -> bool:
    return str(_first_gpu_value(facts, "gpu.mode") or "").startswith("exclusive")


def _why_gpu_closed(facts: Facts) -> str:
    """Return the compute mode that blocks the GPU, and the processes using it."""
    mode, at = str(_first_gpu_value(facts, "gpu.mode") or ""), first_gpu_index(facts)
    if mode == "prohibited":
        return f"GPU {at} is in compute mode prohibited: nvidia-smi -i {at} -c DEFAULT opens it (needs root)"
    holder_list = list_gpu_holders(facts)
    if is_gpu_exclusive(facts) and holder_list and not any("cuda-mps" in one for one in holder_list):
        return f"GPU {at} is in EXCLUSIVE_PROCESS mode, held by {', '.join(holder_list)}"
    return ""


def list_gpu_holders(facts: Facts) -> list[str]:
    """List the processes that hold memory of the first GPU: process, user, command, MiB."""
    rows = [
        r
        for r in facts.value_if_known("gpu.processes") or ()
        if r.get("gpu") == first_gpu_index(facts) and r.get("pid")
    ]
    return [_describe_process(row) for row in rows]


def _describe_process(row: dict[str, Any]) -> str:
    who = f" of {row['user']}" if row.get("user") else ""
    what = f" ({str(row['command'])[:40]})" if row.get("command") else ""
    much = f", {row['used'] >> 20} MiB" if isinstance(row.get("used"), int) else ""
    state = f", {row['state']}" if row.get("state") else ""
    return f"process {row['pid']}{who}{what}{much}{state}"


def _why_gpu_full(row: ProofSpec, facts: Facts) -> str:
    """Return the needed and the free memory if that is not enough; empty if it is or is unknown."""
    free = _first_gpu_value(facts, "gpu.free")
    need = row.memory + CONTEXT_BYTES
    if not isinstance(free, int) or not row.memory or free >= need:
        return ""
    by = ", ".join(list_gpu_holders(facts)) or "processes that are not visible here"
    return f"it needs {need >> 20} MiB of GPU {first_gpu_index(facts)}, and {free >> 20} MiB are free: held by {by}"


def is_memory_draining(rows: Iterable[ProofSpec], facts: Facts) -> bool:
    """Whether memory that a proof needs has no visible owner: the driver may still be freeing it."""
    if why_no_gpu(facts) or list_gpu_holders(facts):
        return False
    return any(row.device != "cpu" and _why_gpu_full(row, facts) for row in rows)


def free_gpu_bytes(facts: Facts) -> int:
    """Return the free bytes of the first GPU; a large number if unknown."""
    found = _first_gpu_value(facts, "gpu.free")
    return found if isinstance(found, int) else 1 << 62
