"""The installed xformers is made for another torch.

## What it checks
The torch version that the installed xformers pins (every release up to 0.0.34 pins one exactly) against the
installed torch. Own builds (with a local version) and nightlies are not checked. It is an error if the
framework or the job needs xformers, else a warning.

## Why it matters
xformers is imported with a long warning and without its kernels. Memory-efficient attention fails when it is
called. It happens after an upgrade of torch, or with ``--no-deps``.

## How to fix
Install the xformers for this torch, or remove it: torch's own attention (SDPA) does the same.

## References
- Metadata of the xformers wheels
"""

from gpuready.model import Contract, Facts, Finding, FixStep
from gpuready.rules import torch_compatibility

CODE = "PKG013"
SEVERITY = "error"
READS = torch_compatibility.READS
REQUIRED_FACTS = ("package.xformers",)
BROKEN = {"job.wants": ("xformers",), "package.xformers": "0.0.32.post2", "torch.version": "2.9.1+cu128"}
HEALTHY = BROKEN | {"torch.version": "2.8.0+cu128"}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    so = "its kernels do not load, and memory-efficient attention fails"
    finding = torch_compatibility.judge_torch_pin(facts, contract, "xformers", so)
    return finding and finding.replace(fix=finding.fix or (FixStep("remove xformers"),))
