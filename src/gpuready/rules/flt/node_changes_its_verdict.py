"""A node gave different verdicts on itself within one run.

It was asked more than once, because an answer was lost or figures were confirmed, and did not say the same each time:
ready, then not. Something on it comes and goes: a GPU that falls off the bus and returns, a disk that hangs, a
service that restarts, memory that others hold for a while.

It is a warning; the worse of its verdicts counts. Such nodes pass a check by luck and fail in the job. Watch the node's
kernel log, and ask it again: ``gpuready fleet check --nodes NAME``.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement
from gpuready.rules import fleet_findings

CODE = "FLT014"
SEVERITY = "warning"
READS = ("fleet.flaps",)
BROKEN = {"fleet.flaps": ({"said": "clear and not-ready", "nodes": "n0007", "count": 1},)}
HEALTHY = {"fleet.flaps": ()}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    rows = fleet_findings.fleet_rows(facts, "fleet.flaps")
    if not rows:
        return None
    count = fleet_findings.total_nodes(rows)
    row = rows[0]
    return Finding(
        CODE,
        SEVERITY,
        f"{fleet_findings.format_count(count)} said {row['said']} of {'itself' if count == 1 else 'themselves'}: {fleet_findings.shorten_node_set(row['nodes'])}",
        found=(facts.fact("fleet.flaps"),),
        needs=(Requirement("fleet.flaps", "none", level="recommended", cite=fleet_findings.CITE),),
        so="such a node may pass the next check and fail in the job",
        fix=(FixStep("look at the kernel's log of the node, and ask it again"),),
    )
