"""A node gave different verdicts within one run.

## What it checks
Whether a node that was asked more than once gave the same verdict each time. It is a warning; the worse
verdict counts.

## Why it matters
Something on it comes and goes: a GPU that falls off the bus and returns, a hanging disk, a restarting
service, memory that others use for a while. Such a node can pass a check and fail in the job.

## How to fix
Read the node's kernel log and ask it again: ``gpuready fleet check --nodes NAME``.

## References
- gpuready guide: fleet (docs/how-to/fleet.md)
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import fleet_findings

CODE = "FLT014"
SEVERITY = "warning"
READS = ("fleet.flaps",)
REQUIRED_FACTS = ("fleet.flaps",)
BROKEN = {"fleet.flaps": ({"said": "clear and not-ready", "nodes": "n0007", "count": 1},)}
HEALTHY = {"fleet.flaps": ()}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    rows = fleet_findings.fleet_rows(facts, "fleet.flaps")
    if not rows:
        return None
    count = fleet_findings.total_nodes(rows)
    row = rows[0]
    return make_finding(
        f"{fleet_findings.format_count(count)} said {row['said']} of {'itself' if count == 1 else 'themselves'}: {fleet_findings.shorten_node_set(row['nodes'])}",
        found=(facts.fact("fleet.flaps"),),
        needs=(Requirement("fleet.flaps", "none", level="recommended", cite=fleet_findings.CITE),),
        so="such a node may pass the next check and fail in a job",
        fix=(FixStep("read the node's kernel log, and check it again"),),
    )
