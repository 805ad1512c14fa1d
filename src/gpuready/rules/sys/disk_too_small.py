"""The disk has less free space than the job needs.

## What it checks
The free space of the disk named in the finding. If the framework states a size, that counts: required is an
error, recommended a warning. Otherwise less than 10 GB is a warning. Model caches (HF_HOME) and checkpoints
may be on another disk.

## Why it matters
An environment with torch and its CUDA libraries needs 6 to 12 GB, a 7B model 14 GB in 16 bits, and each
checkpoint of full training several times that. A full disk interrupts an install, truncates a checkpoint, or
stops a run after hours.

## How to fix
Free space, or put HF_HOME and the checkpoints on a larger disk.

## References
- The framework's requirements, with their citations in the finding
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import contract_needs

CODE = "SYS002"
SEVERITY = "error"
READS = ("disk.free", "disk.path", *contract_needs.READS)
CONTRACT = {"needs": ({"key": "disk.free", "want": ">=50GB", "cite": "installation guide"},)}
BROKEN = {"disk.free": 20_000_000_000, "disk.path": "/home"}
HEALTHY = {"disk.free": 200_000_000_000, "disk.path": "/home"}
DEFAULT_NEED = Requirement(
    "disk.free", ">=10GB", level="recommended", cite="torch 2.15 and its CUDA libraries take 7 GB"
)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    failed = contract_needs.unmet_needs(facts, contract.requirements_for("disk.free") or (DEFAULT_NEED,))
    if not failed or facts.value("disk.free") is None:
        return None
    return make_finding(
        "the disk has little free space",
        found=(facts.fact("disk.free"), facts.fact("disk.path")),
        needs=tuple(failed),
        so="an install, a download or a checkpoint may stop halfway",
        fix=(FixStep("free some space, or put HF_HOME and the checkpoints on a larger disk"),),
        severity=contract_needs.worst_need_severity(failed),
    )
