"""The kernel, the firmware or network cards differ between nodes of one kind.

## What it checks
The kernel, distribution, C library, BIOS, GPU video BIOS, InfiniBand firmware, and the state and speed of
network interfaces against the majority. It is a warning.

## Why it matters
Most of these differences are harmless, but they can explain a slow or failing node. Repaired or later nodes
often differ. A link at half its rate is shown here too.

## How to fix
Bring the nodes to the state of the others at the next maintenance, first those that fail or are slow.

## References
- gpuready guide: fleet (docs/how-to/fleet.md)
"""

from gpuready.model import Contract, Facts, Finding, FixStep
from gpuready.rules import fleet_findings

CODE = "FLT005"
SEVERITY = "warning"
READS = ("fleet.drift",)
REQUIRED_FACTS = ("fleet.drift",)
BROKEN, HEALTHY = fleet_findings.drift_examples("firmware", "firmware.bios", "2.4", "2.1")
AREAS = ("kernel", "firmware", "nics")


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return fleet_findings.drift_finding(
        facts,
        AREAS,
        so="these nodes may be slower, or fail where others do not",
        fix=(FixStep("bring them to the state of the others at the next maintenance", note="needs root"),),
    )
