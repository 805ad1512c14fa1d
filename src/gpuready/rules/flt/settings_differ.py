"""Some settings differ between nodes of one kind.

Environment variables (NCCL, CUDA, torch and what stands on it), limits of processes, mounted file systems, power and
compute mode of the GPUs, or the time zone are not the same on some nodes as on most. Such differences rarely stop a
job. They make one node slower, or let it fail when memory is locked or a data set is looked for.

It is a warning. Variables that must differ (ranks, devices, ports, names of hosts) are not compared, and neither
are secrets. Settings belong into the image, the prolog of the scheduler or the configuration of the machines, so
that they are the same again after the next restart.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep
from gpuready.rules import fleet_findings

CODE = "FLT004"
SEVERITY = "warning"
READS = ("fleet.drift",)
BROKEN, HEALTHY = fleet_findings.drift_examples("limits", "limit.memlock", "-1", "65536")
FACETS = ("variables", "limits", "mounts", "clocks", "time")


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return fleet_findings.drift_finding(
        facts,
        CODE,
        SEVERITY,
        FACETS,
        so="the same job behaves differently on these nodes, and nothing in its log says why",
        fix=(FixStep("set them as on the other nodes: in the image, the prolog or the machines' configuration"),),
    )
