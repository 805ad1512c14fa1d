"""A node shows fewer GPUs than its equals.

Nodes of one kind have the same number of GPUs. Where one shows fewer, a GPU has fallen off the bus, was hidden from
the container, is held by a MIG setting, or the driver did not start. What the scheduler counts on is compared too:
it goes on to hand out GPUs that are not there, and each job that gets them dies.

It is an error. Head nodes without any GPU are a kind of their own, unless the scheduler says otherwise. The kernel's
log of the node (Xid 79, ``fallen off the bus``) and ``nvidia-smi`` tell which; a restart brings most of them
back, once.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement
from gpuready.rules import fleet_findings

CODE = "FLT007"
SEVERITY = "error"
READS = ("fleet.gpus",)
BROKEN = {"fleet.gpus": ({"nodes": "n0412", "count": 1, "gpus": 7, "usual": 8, "stratum": "NVIDIA H100 80GB HBM3"},)}
HEALTHY = {"fleet.gpus": ()}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    rows = fleet_findings.fleet_rows(facts, "fleet.gpus")
    if not rows:
        return None
    row = min(rows, key=lambda one: one["gpus"] - one["usual"])
    count = fleet_findings.total_nodes(rows)
    shows = f"{'shows' if count == 1 else 'show'} {row['gpus']} of {row['usual']} GPUs"
    return Finding(
        CODE,
        SEVERITY,
        f"{fleet_findings.format_count(count)} {shows}: {fleet_findings.shorten_node_set(row['nodes'])}{' and others' if len(rows) > 1 else ''}",
        found=(facts.fact("fleet.gpus"),),
        needs=(Requirement("fleet.gpus", "none", cite=fleet_findings.CITE),),
        so="jobs that are given the missing GPUs fail at their start",
        fix=(
            FixStep("look for Xid 79 in the kernel's log of the node, and restart it", note="needs root"),
            FixStep("keep jobs away from it until then, with the exclude list of this report"),
        ),
    )
