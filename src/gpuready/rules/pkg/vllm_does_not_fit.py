"""The installed vllm is made for another torch.

## What it checks
The torch version that vllm pins against the installed torch. vllm's own metadata decides; if it was not read,
the catalogue does. A vllm built for another torch with the pin removed is not reported. It is an error if the
framework or the job needs vllm, else a warning.

## Why it matters
vllm's kernels are compiled for one torch. With another they fail at import or at the first kernel with an
undefined symbol. It happens if a framework installed later changes torch.

## How to fix
Install the vllm for this torch, or the torch for this vllm if the framework supports it. Otherwise give vllm
its own environment.

## References
- Metadata of the vllm wheels
"""

from gpuready.model import Contract, Facts, Finding, FixStep
from gpuready.rules import torch_compatibility

CODE = "PKG023"
SEVERITY = "error"
READS = torch_compatibility.READS
REQUIRED_FACTS = ("package.vllm",)
BROKEN = {"job.wants": ("vllm",), "package.vllm": "0.11.2", "torch.version": "2.10.0+cu128"}
HEALTHY = BROKEN | {"torch.version": "2.9.0+cu128"}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    so = "its kernels do not load: an undefined symbol at import or at the first request"
    finding = torch_compatibility.judge_torch_pin(facts, contract, "vllm", so)
    return finding and finding.replace(fix=(*finding.fix, FixStep("give vllm its own environment", safety="elsewhere")))
