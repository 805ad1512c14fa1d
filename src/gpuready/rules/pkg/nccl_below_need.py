"""The NCCL that torch would load is older than the framework requires.

## What it checks
The version of the NCCL that torch loads against the framework's requirements, under their conditions. Torch wheels
bring and pin it (``nvidia-nccl-cu12``); other builds use the system's. A torch without CUDA has no NCCL and
is reported by PKG001.

## Why it matters
NCCL does the communication between GPUs. All nodes should have the same version: different versions may
refuse each other or hang.

## How to fix
Install a torch with a newer NCCL. Replacing the pinned NCCL alone works within one major release, but is
untested.

## References
- The framework's requirements, with their citations in the finding
- NCCL release notes
"""

from gpuready.model import Contract, Facts, Finding
from gpuready.rules import fix_steps
from gpuready.rules.pkg.cudnn_below_need import library_below_need

CODE = "PKG016"
SEVERITY = "error"
READS = ("nccl.version", "libnccl.path", "torch.cuda", "torch.version", *fix_steps.READS)
CONTRACT = {"needs": ({"key": "nccl.version", "want": ">=2.20", "cite": "installation guide"},)}
BROKEN = {"nccl.version": "2.18.1", "torch.cuda": "12.1"}
HEALTHY = {"nccl.version": "2.27.3", "torch.cuda": "12.8"}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return library_below_need(
        facts, contract, "nccl.version", "communication between GPUs fails or lacks required features"
    )
