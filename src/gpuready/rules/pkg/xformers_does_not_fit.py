"""The installed xformers is made for another torch.

## What it checks
The torch version that the installed xformers pins (every release up to 0.0.34 pins one exactly) against the
installed torch. Own builds (with a local version) and nightlies are not checked. It is an error if the
contract or the job needs xformers, else a warning.

## Why it matters
xformers is imported with a long warning and without its kernels. Memory-efficient attention fails when it is
called. It happens after an upgrade of torch, or with ``--no-deps``.

## How to fix
Install the xformers for this torch, or remove it: torch's own attention (SDPA) does the same.

## References
- Metadata of the xformers wheels
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement
from gpuready.rules import torch_compatibility

CODE = "PKG013"
SEVERITY = "error"
READS = torch_compatibility.READS
REQUIRED_FACTS = ("package.xformers",)
BROKEN = {"job.wants": ("xformers",), "package.xformers": "0.0.32.post2", "torch.version": "2.9.1+cu128"}
HEALTHY = BROKEN | {"torch.version": "2.8.0+cu128"}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "cuda" not in contract.platforms:
        return None
    pin = torch_compatibility.unmet_torch_pin(facts, "xformers")
    if pin is None:
        return None
    wanted, cite = pin
    return Finding(
        CODE,
        torch_compatibility.soften_for_conda(facts, torch_compatibility.package_severity(facts, contract, "xformers")),
        f"xformers {facts.value('package.xformers')} is made for torch {wanted.removeprefix('==')}",
        found=(facts.fact("package.xformers"), facts.fact("torch.version")),
        needs=(Requirement("package.torch", wanted, cite=cite),),
        so="its kernels do not load, and memory-efficient attention fails",
        fix=tuple(torch_compatibility.matching_release_steps(facts, contract, "xformers", wanted))
        or (FixStep("remove xformers"),),
    )
