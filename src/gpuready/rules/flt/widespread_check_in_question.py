"""One check fails on so many nodes that the check itself is in question.

## What it checks
Whether one check fails on a fifth of the nodes or more, and these nodes have nothing else in common (driver,
kind). Checks that fail on all nodes, or on nodes that differ, are accepted.

## Why it matters
A machine fault affects a few nodes. Here the check, or something that all nodes share, is more likely wrong:
a hanging network share, a limit that is too strict, a new version of the check. The nodes are "can't tell",
and not on the exclude list.

## How to fix
Examine one of the nodes by hand with ``gpuready check -v``.

## References
- gpuready guide: fleet (docs/how-to/fleet.md)
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import fleet_findings

CODE = "FLT013"
SEVERITY = "warning"
READS = ("fleet.widespread",)
REQUIRED_FACTS = ("fleet.widespread",)
BROKEN = {"fleet.widespread": ({"code": "SYS011", "nodes": "n[0001-0300]", "count": 300, "of": 1000},)}
HEALTHY = {"fleet.widespread": ()}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    rows = fleet_findings.fleet_rows(facts, "fleet.widespread")
    if not rows:
        return None
    row = rows[0]
    share = row["count"] / max(row["of"], 1)
    return make_finding(
        f"the check {row['code']} fails on {row['count']:,} of {row['of']:,} nodes ({share:.0%}): the check is in question, not the nodes",
        found=(facts.fact("fleet.widespread"),),
        needs=(Requirement("fleet.widespread", "none", level="recommended", cite=fleet_findings.CITE),),
        so="the verdict for these nodes is open until one of them is examined",
        fix=(
            FixStep(f"run gpuready check -v on one of them: {fleet_findings.shorten_node_set(row['nodes'])}"),
            FixStep(f"read what the check means: gpuready explain {row['code']}"),
        ),
    )
