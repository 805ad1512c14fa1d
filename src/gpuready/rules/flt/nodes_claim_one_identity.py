"""Two or more nodes claim one name or one GPU for themselves.

A node answered under the name of another, two nodes bear one host name, or the same GPU shows up on both. The list of
hosts may name one machine twice, machines may have been cloned with their names, or two containers were given one
GPU. Each of them would be counted twice, and two ranks on one GPU stop NCCL (``Duplicate GPU detected``).

It is an error, and what such a node said under another's name is not believed. Names in the list that nobody in the
fleet has, such as addresses and aliases, are no case of it.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement
from gpuready.rules import fleet_findings

CODE = "FLT012"
SEVERITY = "error"
READS = ("fleet.conflicts",)
BROKEN = {"fleet.conflicts": ({"what": "8 GPUs", "nodes": "n[0041-0042]"},)}
HEALTHY = {"fleet.conflicts": ()}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    rows = fleet_findings.fleet_rows(facts, "fleet.conflicts")
    if not rows:
        return None
    row = rows[0]
    more = f", and {len(rows) - 1} more" if len(rows) > 1 else ""
    return Finding(
        CODE,
        SEVERITY,
        f"several nodes claim {fleet_findings.shorten_value(row['what'], 50)}: {fleet_findings.shorten_node_set(row['nodes'])}{more}",
        found=(facts.fact("fleet.conflicts"),),
        needs=(Requirement("fleet.conflicts", "none", cite="NCCL: Duplicate GPU detected"),),
        so="one machine or GPU is counted twice, and a job over both stops",
        fix=(
            FixStep("name each machine once in the list of hosts, and give cloned machines names of their own"),
            FixStep("give each container GPUs of its own"),
        ),
    )
