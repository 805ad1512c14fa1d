"""The software of the job differs between nodes of one kind.

## What it checks
The versions of torch, CUDA libraries, compiled packages, Python and other packages against the majority.
torch, CUDA libraries and compiled kernels are an error, the rest a warning.

## Why it matters
Ranks run different kernels, send tensors of different layout, or fail to unpickle data. Environments on local
disks drift apart with every manual install.

## How to fix
Reinstall the environment from one lock with ``gpuready install --locked`` on the nodes named, or use a shared
environment.

## References
- gpuready guides: fleet and install
"""

from gpuready.model import Contract, Facts, Finding, FixStep
from gpuready.rules import fleet_findings

CODE = "FLT003"
SEVERITY = "error"
READS = ("fleet.drift",)
REQUIRED_FACTS = ("fleet.drift",)
BROKEN, HEALTHY = fleet_findings.drift_examples("torch", "torch.version", "2.8.0+cu128", "2.7.1+cu126")
AREAS = ("torch", "cuda", "kernels", "packages", "python")
GRAVE = ("torch", "cuda", "kernels")


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return fleet_findings.drift_finding(
        facts,
        AREAS,
        so="ranks on these nodes run other code, and may fail or give other results",
        fix=(
            FixStep("reinstall the environment of these nodes from the others' lock"),
            FixStep("exclude them from jobs until then, with the exclude list of this report"),
        ),
        error_areas=GRAVE,
    )
