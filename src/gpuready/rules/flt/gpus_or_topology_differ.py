"""The GPUs, or how they are connected, differ between nodes of one kind.

A node has other GPUs than its equals, another memory size, MIG or ECC set differently; or its GPUs hang on fewer NVLink
connections, narrower PCIe links, other NUMA nodes, or on switches whose service does not run. A job runs at the pace
of its slowest node, and placement that was tuned for one layout is wrong for the other.

It is an error where the GPUs themselves differ, a warning where only their connections do. Kinds of GPUs of which a
fleet has many are compared among themselves and never with each other.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep
from gpuready.rules import fleet_findings

CODE = "FLT008"
SEVERITY = "error"
READS = ("fleet.drift",)
BROKEN, HEALTHY = fleet_findings.drift_examples("gpus", "gpu.ecc", "8 x on", "8 x off")
FACETS = ("gpus", "topology")


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return fleet_findings.drift_finding(
        facts,
        CODE,
        SEVERITY,
        FACETS,
        so="a job over these nodes runs at the pace and with the memory of the odd one",
        fix=(
            FixStep("set MIG and ECC as on the other nodes, and look at the links with nvidia-smi topo -m"),
            FixStep("keep jobs away from them until then, with the exclude list of this report"),
        ),
        error_facets=("gpus",),
    )
