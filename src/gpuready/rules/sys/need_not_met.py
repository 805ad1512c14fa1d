"""The machine does not meet something else that the contract asks for.

Contracts ask for more than GPUs, drivers and packages: an architecture, a kernel, main memory. What has no
rule of its own is judged here, need by need, so that no line of a contract goes unread. A required need
that is not met is an error, a recommended one a warning, an optional one a line of information. The
evidence names the fact that was found and the line of the contract that asks for more.
"""

from __future__ import annotations

from gpuready.contracts.want import describe
from gpuready.model import Finding, Step
from gpuready.rules import cards, needs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Need

CODE = "SYS004"
SEVERITY = "error"
READS = ("*",)
SIGNS = ()
CONTRACT = {"needs": ({"key": "memory.total", "want": ">=64GB", "cite": "installation guide"},)}
BROKEN = {"memory.total": 16_000_000_000}
HEALTHY = {"memory.total": 128_000_000_000}

TOLD_ELSEWHERE = (
    "gpu.capability",
    "gpu.memory",
    "driver.version",
    "toolkit.version",
    "toolkit.nvcc",
    "torch.build",
    "torch.cuda",
    "cudnn.version",
    "nccl.version",
    "python.version",
    "disk.free",
    "system.shm",
    "os.system",
)
FAMILIES_ELSEWHERE = ("package.", "compiler.", "can.", "log.", "fit.", "fleet.")
"""Keys and families of needs that have a rule of their own."""

WITH_TORCH = ("torch.",)
"""Facts that exist only with a CUDA build of torch."""


def judge(facts: Facts, contract: Contract) -> Finding | None:
    told = [need for need in needs.unmet(facts, _left(contract)) if _follows(facts, need)]
    failed = needs.unmet(facts, [need for need in _left(contract) if need not in told])
    if not failed:
        return None
    keys = list(dict.fromkeys(need.key for need in failed))
    return Finding(
        CODE,
        needs.severity(failed),
        f"not what {contract.framework} asks for: {cards.listed(keys)}",
        found=tuple(facts.fact(key) for key in keys),
        needs=tuple(failed),
        so=f"{contract.framework} may refuse this machine or fail on it",
        fix=(Step("; ".join(f"bring {need.key} to {describe(need.want)}" for need in failed)),),
    )


def _left(contract: Contract) -> list[Need]:
    return [
        n for n in contract.needs if n.key not in TOLD_ELSEWHERE and not n.key.startswith(FAMILIES_ELSEWHERE)
    ]


def _follows(facts: Facts, need: Need) -> bool:
    """Return whether a need fails only because of what another rule reports: no GPU, or no torch with CUDA."""
    if need.key == "gpu.count":
        return not facts.value("gpu.count")
    return (
        need.key.startswith(WITH_TORCH)
        and not facts.value(need.key)
        and needs.glimpse(facts, "torch.cuda") is None
    )
