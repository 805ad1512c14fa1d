"""Some settings differ between nodes of one kind.

## What it checks
Environment variables (NCCL, CUDA, torch), process limits, mounted file systems, GPU power and compute mode,
and the time zone against the majority. Ranks, devices, ports, host names and secrets are not compared. It is
a warning.

## Why it matters
The job rarely stops, but one node is slower, or fails when it locks memory or opens a dataset.

## How to fix
Put the settings into the image, the scheduler's prolog or the machine configuration, so that they survive a
restart.

## References
- gpuready guide: fleet (docs/how-to/fleet.md)
"""

from gpuready.model import Contract, Facts, Finding, FixStep
from gpuready.rules import fleet_findings

CODE = "FLT004"
SEVERITY = "warning"
READS = ("fleet.drift",)
REQUIRED_FACTS = ("fleet.drift",)
BROKEN, HEALTHY = fleet_findings.drift_examples("limits", "limit.memlock", "-1", "65536")
AREAS = ("variables", "limits", "mounts", "clocks", "time")


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return fleet_findings.drift_finding(
        facts,
        AREAS,
        so="the same job behaves differently on these nodes, and its log does not say why",
        fix=(FixStep("set them as on the other nodes: in the image, the prolog or the machines' configuration"),),
    )
