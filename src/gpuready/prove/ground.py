"""Decide where each proof runs before anything is started: on which GPU, or why on none.

Read from facts only: a hidden, closed, occupied or full GPU is reported at once, before torch is imported.
"""

from __future__ import annotations

from gpuready.model import Noun
from gpuready.prove import choose
from gpuready.proven import SKIPPED, Proof

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from gpuready.catalog.proofs import Row
    from gpuready.model import Facts

CONTEXT = 768 << 20
"""GPU memory of a bare CUDA context, in bytes."""

MOST_RANKS = 8


class Task(Noun):
    """A proof that can be started: device, number of processes, and GPU memory."""

    row: Any
    device: str
    ranks: int = 1
    memory: int = 0
    counts: bool = True  # False: it proves only the CPU variant of the capability


def placed(row: Row, facts: Facts, cpus: int) -> list[Task | Proof]:
    """Return the tasks of one row, with a finished Proof for each that cannot be started."""
    if row.device == "cpu":
        return [_on_cpu(row, facts, cpus, True)]
    if choose.asks_for_cpu(facts):
        return [_on_cpu(row, facts, cpus, True)] if row.device == "any" else []
    why = _no_torch(facts) or no_gpu(facts)
    if why:
        told = [left(row, "absent", why)]
        return [*told, _on_cpu(row, facts, cpus, False)] if row.device == "any" else [*told]
    return [_on_gpu(row, facts)]


def _no_torch(facts: Facts) -> str:
    torch = facts.fact("package.torch")
    return "torch is not installed" if torch.value is None and not torch.gap else ""


def no_gpu(facts: Facts) -> str:
    """Return why there is no GPU to run on; empty if there is or may be one."""
    if facts.known("platform.name") == "rocm":
        return ""  # torch calls it cuda as well
    if facts.known("gpu.count") == 0:
        return "no GPU in this machine"
    if facts.fact("gpu.count").gap or facts.fact("gpu.visible").gap:
        return ""  # unknown to the driver: torch will report it
    if not facts.known("gpu.visible"):
        table = facts.known("visibility.cuda") or {}
        value = table.get("value")
        hidden = (
            f"CUDA_VISIBLE_DEVICES hides all GPUs (value {value!r})"
            if value is not None
            else "no GPU is visible"
        )
        return f"{hidden}: {table['why']}" if table.get("why") else hidden
    return ""


def _on_cpu(row: Row, facts: Facts, cpus: int, counts: bool) -> Task | Proof:
    if _no_torch(facts):
        return left(row, "absent", "torch is not installed", "cpu", counts)
    if missing := _package(row, facts):
        return left(row, "absent", missing, "cpu", counts)
    return Task(row, "cpu", max(2, min(4, cpus)) if row.ranks == 0 else row.ranks, 0, counts)


def _on_gpu(row: Row, facts: Facts) -> Task | Proof:
    if missing := _package(row, facts):
        return left(row, "absent", missing)
    if cannot := choose.lacking(row, facts):
        return left(row, "unsupported", cannot)
    if few := choose.beyond(row, facts):
        return left(row, SKIPPED, few)
    if shut := _shut(facts):
        return left(row, "absent", shut)
    if full := _full(row, facts):
        return left(row, SKIPPED, full)
    count = len(facts.known("gpu.visible") or (0,))
    ranks = min(MOST_RANKS, count) if row.ranks == 0 else row.ranks
    return Task(row, "cuda:0", ranks, row.memory + CONTEXT)


def _package(row: Row, facts: Facts) -> str:
    if not row.package:
        return ""
    found = facts.fact(f"package.{row.package}")
    return f"{row.package} is not installed" if found.value is None and not found.gap else ""


def left(row: Row, verdict: str, why: str, device: str = "cuda", counts: bool = True) -> Proof:
    return Proof(
        name=row.name if counts else f"{row.name}, cpu",
        verdict=verdict,
        why=why,
        device=device,
        source=row.source,
        capability=row.capability if counts else aside(row),
        executed=row.executed,
    )


def aside(row: Row) -> tuple[str, ...]:
    """Return the capability names of a proof that ran on the CPU instead of a GPU."""
    return tuple(f"cpu-{name}" for name in row.capability)


# -- a closed or full GPU ---------------------------------------------------------------------------------


def first(facts: Facts) -> int:
    """Return the physical index of the GPU that torch calls cuda:0."""
    shown = facts.known("gpu.visible")
    return int(shown[0]) if shown else 0


def _of(facts: Facts, key: str) -> Any:
    several, at = facts.known(key) or (), first(facts)
    return several[at] if at < len(several) else None


def exclusive(facts: Facts) -> bool:
    return str(_of(facts, "gpu.mode") or "").startswith("exclusive")


def _shut(facts: Facts) -> str:
    """Return the compute mode that blocks the GPU, and the processes using it."""
    mode, at = str(_of(facts, "gpu.mode") or ""), first(facts)
    if mode == "prohibited":
        return f"GPU {at} is in compute mode prohibited: nvidia-smi -i {at} -c DEFAULT opens it (needs root)"
    held = holders(facts)
    if exclusive(facts) and held and not any("cuda-mps" in one for one in held):
        return f"GPU {at} is in EXCLUSIVE_PROCESS mode, held by {', '.join(held)}"
    return ""


def holders(facts: Facts) -> list[str]:
    """List the processes that hold memory of the first GPU: process, user, command, MiB."""
    rows = [r for r in facts.known("gpu.processes") or () if r.get("gpu") == first(facts) and r.get("pid")]
    return [_holder(row) for row in rows]


def _holder(row: dict[str, Any]) -> str:
    who = f" of {row['user']}" if row.get("user") else ""
    what = f" ({str(row['command'])[:40]})" if row.get("command") else ""
    much = f", {row['used'] >> 20} MiB" if isinstance(row.get("used"), int) else ""
    state = f", {row['state']}" if row.get("state") else ""
    return f"process {row['pid']}{who}{what}{much}{state}"


def _full(row: Row, facts: Facts) -> str:
    """Return the needed and the free memory if that is not enough; empty if it is or is unknown."""
    free = _of(facts, "gpu.free")
    need = row.memory + CONTEXT
    if not isinstance(free, int) or not row.memory or free >= need:
        return ""
    by = ", ".join(holders(facts)) or "processes that are not visible here"
    return f"it needs {need >> 20} MiB of GPU {first(facts)}, and {free >> 20} MiB are free: held by {by}"


def draining(rows: Iterable[Row], facts: Facts) -> bool:
    """Whether memory that a proof needs has no visible owner: the driver may still be freeing it."""
    if no_gpu(facts) or holders(facts):
        return False
    return any(row.device != "cpu" and _full(row, facts) for row in rows)


def free(facts: Facts) -> int:
    """Return the free bytes of the first GPU; a large number if unknown."""
    found = _of(facts, "gpu.free")
    return found if isinstance(found, int) else 1 << 62
