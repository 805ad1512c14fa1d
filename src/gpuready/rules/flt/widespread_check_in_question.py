"""One check fails on so many nodes that it is the check that is in question.

A fault of a machine hits a few nodes. Where one check fails on a fifth of them or more, and these nodes have nothing
else in common that would explain it (no other driver, no other kind), the check itself or something that all nodes
share is likelier to be wrong: a network share that hangs, a limit that is set too tight, a new version of the check.
Health checks that condemned good nodes have emptied whole clusters.

It is a warning, and the nodes that only this check condemns are undecided, not broken: they are not on the exclude list.
Look at one of the nodes by hand. Checks that fail on all nodes, or on those that differ, are believed.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement
from gpuready.rules import fleet_findings

CODE = "FLT013"
SEVERITY = "warning"
READS = ("fleet.widespread",)
BROKEN = {"fleet.widespread": ({"code": "SYS011", "nodes": "n[0001-0300]", "count": 300, "of": 1000},)}
HEALTHY = {"fleet.widespread": ()}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    rows = fleet_findings.fleet_rows(facts, "fleet.widespread")
    if not rows:
        return None
    row = rows[0]
    share = row["count"] / max(row["of"], 1)
    return Finding(
        CODE,
        SEVERITY,
        f"the check {row['code']} fails on {row['count']:,} of {row['of']:,} nodes ({share:.0%}): the check is in question, not the nodes",
        found=(facts.fact("fleet.widespread"),),
        needs=(Requirement("fleet.widespread", "none", level="recommended", cite=fleet_findings.CITE),),
        so="these nodes are neither condemned nor cleared until somebody has looked at one",
        fix=(
            FixStep(f"run gpuready check -v on one of them: {fleet_findings.shorten_node_set(row['nodes'])}"),
            FixStep(f"read what the check means: gpuready explain {row['code']}"),
        ),
    )
