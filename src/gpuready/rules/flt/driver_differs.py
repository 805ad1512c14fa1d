"""The driver differs between nodes of one kind.

## What it checks
The driver version of each node against the majority or the reference. It is an error if a few nodes differ
from a clear majority; parts of similar size are FLT006.

## Why it matters
Different drivers behave differently: one can load kernels that the other cannot, NCCL negotiates fewer
features, and a wheel that needs the newer driver fails on a few ranks only.

## How to fix
Install the same driver on the nodes and reboot them.

## References
- gpuready guide: fleet (docs/how-to/fleet.md)
- CUDA Compatibility
"""

from gpuready.model import Contract, Facts, Finding, FixStep
from gpuready.rules import fleet_findings

CODE = "FLT002"
SEVERITY = "error"
READS = ("fleet.drift",)
REQUIRED_FACTS = ("fleet.drift",)
BROKEN, HEALTHY = fleet_findings.drift_examples("driver", "driver.version", "580.95.05", "550.54.15")
AREAS = ("driver",)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return fleet_findings.drift_finding(
        facts,
        AREAS,
        so="ranks on these nodes use another driver, and may fail or be slow",
        fix=(
            FixStep("install the other nodes' driver and reboot", note="needs root"),
            FixStep("exclude them from jobs until then, with the exclude list of this report"),
        ),
    )
