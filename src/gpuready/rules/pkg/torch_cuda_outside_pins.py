"""The torch wheel is built with a CUDA that the framework does not take.

Some frameworks ask not only for a version of torch but for the CUDA that it is built with: because they
ship kernels for that CUDA, because their other packages link to its libraries, or because newer GPUs need it.
Which CUDA that is, the local part of torch's version tells (``2.8.0+cu128``), not nvcc and not nvidia-smi.

Install the build of torch for a CUDA that is taken; the driver must be new enough for it. Where no build
fits the driver, the driver has to be updated first.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep
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
    step = fix_steps.replace_torch_step(facts, contract) or FixStep(f"install a torch built with CUDA {wanted}")
    return Finding(
        CODE,
        contract_needs.worst_need_severity(failed),
        f"torch is built with a CUDA that {contract.framework} does not take",
        found=(facts.fact("torch.cuda"), facts.fact("torch.version")),
        needs=tuple(failed),
        so=f"kernels of {contract.framework} or of its packages do not load, or lack what newer GPUs need",
        fix=(step,),
    )
