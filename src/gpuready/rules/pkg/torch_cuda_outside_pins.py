"""The torch wheel is built with a CUDA that the framework does not support.

## What it checks
The CUDA that torch is built with, from its local version (``2.8.0+cu128``), against the framework's requirements. nvcc and
nvidia-smi do not show it.

## Why it matters
Some frameworks have kernels for one CUDA, or packages that link to its libraries, or need it for newer GPUs.
With another CUDA, those kernels do not load or lack support.

## How to fix
Install the torch build for a supported CUDA. The driver must be new enough for it; if no build fits the
driver, update the driver first.

## References
- The framework's requirements, with their citations in the finding
"""

from gpuready.model import Contract, Facts, Finding, FixStep, make_finding
from gpuready.rules import contract_needs, fix_steps

CODE = "PKG007"
SEVERITY = "error"
READS = ("torch.cuda", "torch.version", "gpu.visible", *fix_steps.READS)
CONTRACT = {"needs": ({"key": "torch.cuda", "want": ">=12.4", "cite": "installation guide"},)}
BROKEN = {"torch.cuda": "11.8", "torch.version": "2.6.0+cu118", "python.version": "3.12.3"}
HEALTHY = {"torch.cuda": "12.8", "torch.version": "2.8.0+cu128", "python.version": "3.12.3"}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    stated = contract.requirements_for("torch.cuda")
    if not stated:
        return None
    # PKG002 and PKG001 report a missing torch, or one without CUDA.
    failed = [
        need for need in contract_needs.unmet_needs(facts, stated) if facts.value_if_known("torch.cuda") is not None
    ]
    if not failed:
        return None
    wanted = " and ".join(dict.fromkeys(need.want for need in failed))
    needed = contract.replace(needs=(*contract.needs, *(need.replace(level="required") for need in failed)))
    step = fix_steps.replace_torch_step(facts, needed) or FixStep(f"install a torch built with CUDA {wanted}")
    return make_finding(
        f"torch is built with a CUDA that is incompatible with {contract.framework}",
        found=(facts.fact("torch.cuda"), facts.fact("torch.version")),
        needs=tuple(failed),
        so=f"kernels of {contract.framework} or of its packages do not load, or do not support newer GPUs",
        fix=(step,),
        severity=contract_needs.worst_need_severity(failed),
    )
