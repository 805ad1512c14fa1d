"""The NCCL that torch would load is older than the framework asks for.

NCCL carries what GPUs say to each other. The wheels of torch bring it (``nvidia-nccl-cu12``) and pin its
version; builds of a distribution or of an image take the system's. Every node of a run should have the same
one: two versions may refuse each other, or agree and hang.

It weighs what the contract says, and only on the machines and jobs that it says it of: an error where it is
required. A torch without CUDA has no NCCL, which is told elsewhere. Take a torch that brings a newer one; a
newer NCCL alone, put in the place of the pinned one, works within one major, and is yours to test.
"""

from __future__ import annotations

from gpuready.rules import fix_steps
from gpuready.rules.pkg.cudnn_below_need import library_below_need

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "PKG016"
SEVERITY = "error"
READS = ("nccl.version", "libnccl.path", "torch.cuda", "torch.version", *fix_steps.READS)
CONTRACT = {"needs": ({"key": "nccl.version", "want": ">=2.20", "cite": "installation guide"},)}
BROKEN = {"nccl.version": "2.18.1", "torch.cuda": "12.1"}
HEALTHY = {"nccl.version": "2.27.3", "torch.cuda": "12.8"}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return library_below_need(
        facts, contract, "nccl.version", CODE, "what GPUs exchange fails, or lacks what it relies on"
    )
