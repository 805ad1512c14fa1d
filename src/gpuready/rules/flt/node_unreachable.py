"""Some nodes of the fleet did not answer.

Each node was asked and given its time. Dead ones could not be reached at all, slow ones were reached and did not
answer in time, refusing ones said no (a password, a host key, a program that is missing), and garbled ones sent what
is no answer: too long, no JSON, or under the name of another node. Nothing is known of any of them.

It is an error: a job that spans the fleet waits for every node. Nodes that the scheduler itself calls drained,
down or reserved are listed and do not count here. Look at one node of each group; give slow ones more time
with ``--timeout``; or keep jobs away from them.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement
from gpuready.rules import fleet_findings

CODE = "FLT001"
SEVERITY = "error"
READS = ("fleet.unreachable", "fleet.nodes")
BROKEN = {
    "fleet.nodes": 1000,
    "fleet.unreachable": (
        {"kind": "dead", "why": "No route to host", "nodes": "n[0001-0010]", "count": 10},
        {"kind": "slow", "why": "no answer in 10 s", "nodes": "n0777", "count": 1},
    ),
}
HEALTHY = BROKEN | {"fleet.unreachable": ()}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    rows = fleet_findings.fleet_rows(facts, "fleet.unreachable")
    if not rows:
        return None
    first = rows[0]
    kinds: dict[str, int] = {}
    for row in rows:
        kinds[row["kind"]] = kinds.get(row["kind"], 0) + row["count"]
    how = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
    silent, of = fleet_findings.total_nodes(rows), facts.value_if_known("fleet.nodes") or 0
    return Finding(
        CODE,
        SEVERITY,
        f"{silent:,} of {of:,} nodes did not answer ({how}): {fleet_findings.shorten_node_set(first['nodes'])}",
        found=(facts.fact("fleet.unreachable"),),
        needs=(Requirement("fleet.unreachable", "none", cite=fleet_findings.CITE),),
        so="nothing is known of these nodes, and a job on all of the fleet would wait for them",
        fix=(
            FixStep("look at one node of each group; the reasons stand beside them"),
            FixStep("give slow nodes more time with --timeout"),
            FixStep("keep jobs away from them until then, with the exclude list of this report"),
        ),
    )
