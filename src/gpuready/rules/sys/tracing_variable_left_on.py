"""A variable for tracing is set, which slows every job.

CUDA_LAUNCH_BLOCKING=1 makes the CPU wait for each kernel, so that a stack trace shows the right line;
TORCH_DISTRIBUTED_DEBUG=DETAIL checks every collective on all ranks before it runs; NCCL_DEBUG=TRACE writes a
line for each call; PYTORCH_NO_CUDA_MEMORY_CACHING asks the driver for every tensor. They are made for one
search, and stay in a shell or in a job script for months.

This is a line of information: the job gives the same results, up to several times slower. Nothing is said of
CUDA_LAUNCH_BLOCKING where the job asks for determinism, which sets it. Unset them when the search is over.
"""

from __future__ import annotations

from gpuready.model import Finding, Need, Step
from gpuready.rules import cards, job, shell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts

CODE = "SYS018"
SEVERITY = "info"
READS = ("env.*", "job.wants")
SIGNS = ()
BROKEN = {"env.names": ("CUDA_LAUNCH_BLOCKING",), "env.CUDA_LAUNCH_BLOCKING": "1"}
HEALTHY = BROKEN | {"env.CUDA_LAUNCH_BLOCKING": "0"}
CITES = {
    "CUDA_LAUNCH_BLOCKING": "CUDA C++ Programming Guide, CUDA environment variables",
    "TORCH_DISTRIBUTED_DEBUG": "torch.distributed, debugging: DETAIL may have an impact on performance",
    "NCCL_DEBUG": "NCCL user guide, environment variables, NCCL_DEBUG",
    "PYTORCH_NO_CUDA_MEMORY_CACHING": "torch, CUDA environment variables",
}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if shell.unseen(facts):
        return None
    left = [name for name in CITES if _slows(facts, name)]
    if not left:
        return None
    return Finding(
        CODE,
        SEVERITY,
        f"set for tracing, and slow: {cards.listed([f'{n}={shell.value(facts, n)}' for n in left])}",
        found=tuple(facts.fact(f"env.{name}") for name in left),
        needs=tuple(Need(f"env.{name}", "unset", level="optional", cite=CITES[name]) for name in left),
        so="every job that starts from this shell runs slower than it could",
        fix=(Step(f"unset {' '.join(left)}"),),
    )


def _slows(facts: Facts, name: str) -> bool:
    text = shell.value(facts, name)
    if text is None:
        return False
    if name == "CUDA_LAUNCH_BLOCKING":
        return shell.switched_on(facts, name) and not job.asks(facts, "determinism")
    words = {"NCCL_DEBUG": "TRACE", "TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
    return name not in words or text.upper() == words[name]
