"""The kernel, the firmware or network cards differ between nodes of one kind.

The release of the kernel, the distribution, the C library, the BIOS, the video BIOS of the GPUs, the firmware of the
InfiniBand cards, or which interfaces are up and how fast they are, is not the same on some nodes as on most. Nodes
that were repaired or delivered later often come back so. A link that trained at half its rate shows here too.

It is a warning: most such differences are harmless for weeks and then explain everything. Bring the nodes to the
state of the others at the next maintenance, and look first at those that fail pairs or measure slower.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep
from gpuready.rules import fleet_findings

CODE = "FLT005"
SEVERITY = "warning"
READS = ("fleet.drift",)
BROKEN, HEALTHY = fleet_findings.drift_examples("firmware", "firmware.bios", "2.4", "2.1")
FACETS = ("kernel", "firmware", "nics")


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return fleet_findings.drift_finding(
        facts,
        CODE,
        SEVERITY,
        FACETS,
        so="these nodes may be slower or fail in ways that the others do not show",
        fix=(FixStep("bring them to the state of the others at the next maintenance", note="needs root"),),
    )
