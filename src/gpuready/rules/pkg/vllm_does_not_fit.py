"""The installed vllm is made for another torch.

## What it checks
The torch version that vllm pins against the installed torch. vllm's own metadata decides; if it was not read,
the catalogue does. A vllm built for another torch with the pin removed is not reported. It is an error if the
contract or the job needs vllm, else a warning.

## Why it matters
vllm's kernels are compiled for one torch. With another they fail at import or at the first kernel with an
undefined symbol. It happens if a framework installed later changes torch.

## How to fix
Install the vllm for this torch, or the torch for this vllm if the framework supports it. Otherwise give vllm
its own environment.

## References
- Metadata of the vllm wheels
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement
from gpuready.rules import torch_compatibility

CODE = "PKG023"
SEVERITY = "error"
READS = torch_compatibility.READS
REQUIRED_FACTS = ("package.vllm",)
BROKEN = {"job.wants": ("vllm",), "package.vllm": "0.11.2", "torch.version": "2.10.0+cu128"}
HEALTHY = BROKEN | {"torch.version": "2.9.0+cu128"}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms:
        return None
    pin = torch_compatibility.unmet_torch_pin(facts, "vllm")
    if pin is None:
        return None
    wanted, cite = pin
    steps = torch_compatibility.matching_release_steps(facts, contract, "vllm", wanted)
    return Finding(
        CODE,
        torch_compatibility.soften_for_conda(facts, torch_compatibility.package_severity(facts, contract, "vllm")),
        f"vllm {facts.value('package.vllm')} is made for torch {wanted.removeprefix('==')}",
        found=(facts.fact("package.vllm"), facts.fact("torch.version")),
        needs=(Requirement("package.torch", wanted, cite=cite),),
        so="its kernels do not load: an undefined symbol at import or at the first request",
        fix=(*steps, FixStep("give vllm its own environment", safety="elsewhere")),
    )
