"""The installed vllm is made for another torch.

Every vllm pins one torch exactly: its kernels are compiled against it, and the newest torch is never among
them on the day it comes out. A framework that is installed afterwards may change torch; vllm then fails at
import or at its first kernel, with an undefined symbol.

Its own metadata is believed first: who builds vllm against another torch takes the pin out of it, and then
nothing is said. Where the metadata was not read, the catalogue tells, for versions that it knows. It is an
error where the contract or the job needs vllm, else a warning. Install the vllm of this torch, or the torch
of this vllm where the framework takes it; else give it an environment of its own.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement
from gpuready.rules import torch_compatibility

CODE = "PKG023"
SEVERITY = "error"
READS = torch_compatibility.READS
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
        fix=(*steps, FixStep("or give vllm an environment of its own")),
    )
