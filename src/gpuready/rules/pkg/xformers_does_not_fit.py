"""The installed xformers is made for another torch.

Every xformers up to 0.0.34 pins one torch exactly, because its kernels are compiled against it. An
installer keeps to that; an upgrade of torch afterwards, or ``--no-deps``, does not. xformers is then
imported with a long warning and without its kernels: memory-efficient attention fails where it is called.

Judged by the catalogue, for versions that it knows and releases of torch; builds of your own (with a local
part in the version) and nightlies are not. It is an error where the contract or the job needs xformers,
else a warning. Install the xformers of this torch, or leave it out: torch's own attention (SDPA) does the
same.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement
from gpuready.rules import torch_compatibility

CODE = "PKG013"
SEVERITY = "error"
READS = torch_compatibility.READS
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
        so="its kernels do not load, and memory-efficient attention fails where it is called",
        fix=tuple(torch_compatibility.matching_release_steps(facts, contract, "xformers", wanted))
        or (FixStep("remove xformers"),),
    )
