"""A node shows fewer GPUs than others of its kind.

## What it checks
The number of GPUs of each node against its kind and against the scheduler. Head nodes without a GPU are a
kind of their own, unless the scheduler says otherwise.

## Why it matters
The scheduler assigns GPUs that are not there, and each job that gets them fails. A GPU fell off the bus, is
hidden from the container, is affected by MIG, or the driver did not start.

## How to fix
Check ``nvidia-smi`` and the kernel log of the node (Xid 79, ``fallen off the bus``), and restart it.

## References
- NVIDIA Xid Errors, Xid Catalog: 79
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import fleet_findings

CODE = "FLT007"
SEVERITY = "error"
READS = ("fleet.gpus",)
REQUIRED_FACTS = ("fleet.gpus",)
BROKEN = {"fleet.gpus": ({"nodes": "n0412", "count": 1, "gpus": 7, "usual": 8, "peers": "NVIDIA H100 80GB HBM3"},)}
HEALTHY = {"fleet.gpus": ()}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    rows = fleet_findings.fleet_rows(facts, "fleet.gpus")
    if not rows:
        return None
    row = min(rows, key=lambda one: one["gpus"] - one["usual"])
    count = fleet_findings.total_nodes(rows)
    shows = f"{'shows' if count == 1 else 'show'} {row['gpus']} of {row['usual']} GPUs"
    return make_finding(
        f"{fleet_findings.format_count(count)} {shows}: {fleet_findings.shorten_node_set(row['nodes'])}{' and others' if len(rows) > 1 else ''}",
        found=(facts.fact("fleet.gpus"),),
        needs=(Requirement("fleet.gpus", "none", cite=fleet_findings.CITE),),
        so="jobs that get the missing GPUs fail at start",
        fix=(
            FixStep("look for Xid 79 in the node's kernel log, and restart the node", note="needs root"),
            FixStep("exclude it from jobs until then, with the exclude list of this report"),
        ),
    )
