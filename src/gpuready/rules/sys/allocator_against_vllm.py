"""The allocator's expandable segments are on, and vLLM is to sleep.

Training and generation on the same GPUs take turns: while the trainer works, vLLM sleeps and gives its memory
back. For that it allocates from a memory pool of its own, and torch's expandable segments do not go together
with such pools. vLLM up to 0.20 stops with ``Expandable segments are not compatible with memory pool``; from
0.21 on it turns them off for its pool by itself.

It is a warning where vLLM is asked for and older than 0.21, since without sleep mode the two get along. ROLL
empties the old variable before it makes an engine; then only the new name (PYTORCH_ALLOC_CONF, torch 2.9 and
newer) is told. Unset the variable in the process that runs vLLM; the trainer may keep it.
"""

from __future__ import annotations

from gpuready import versions
from gpuready.model import Finding, Need, Step
from gpuready.rules import allocator, job, needs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts

CODE = "SYS014"
SEVERITY = "warning"
READS = (*allocator.READS, "job.wants", *needs.READS)
SIGNS = (
    {
        "says": "Expandable segments are not compatible with memory pool",
        "in": "exception",
        "cause": "not-environment",
    },
)
BROKEN = {
    "job.wants": ("vllm",),
    "env.names": ("PYTORCH_CUDA_ALLOC_CONF",),
    "env.PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    "package.torch": "2.8.0+cu128",
    "package.vllm": "0.10.2",
}
HEALTHY = BROKEN | {"env.PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:512"}
SINCE = "0.21"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if not _generates(facts, contract):
        return None
    found = allocator.effective(facts)
    if found is None or not allocator.expands(found[1]) or _emptied(contract, found[0]):
        return None
    version = facts.value("package.vllm")
    if version is None or versions.compare(str(version), SINCE) >= 0:
        return None
    variable = found[0]
    cite = "vLLM pull request 14189; PyTorch issue 147851; turned off by itself from pull request 40812 on"
    return Finding(
        CODE,
        SEVERITY,
        f"expandable segments are on ({variable}), which vLLM {version} cannot sleep with",
        found=(facts.fact(f"env.{variable}"), facts.fact("package.vllm")),
        needs=(Need("package.vllm", f">={SINCE}", level="recommended", cite=cite),),
        so="vLLM stops when its engine is made with sleep mode; without sleep mode it runs",
        fix=(
            Step(f"unset {variable} in the processes that run vLLM"),
            Step("let vLLM have GPUs of its own, without sleep mode"),
        ),
    )


def _generates(facts: Facts, contract: Contract) -> bool:
    """Return whether the job or the contract asks for vLLM."""
    if job.asks(facts, "vllm"):
        return True
    required = [n for n in contract.wants("package.vllm") if n.level == "required"]
    return any(needs.surely(facts, need) for need in required)


def _emptied(contract: Contract, name: str) -> bool:
    """Return whether, by its contract, the framework removes the variable for vLLM."""
    return any(v.name == name and "emptied-for-vllm" in v.traits for v in contract.variables)
