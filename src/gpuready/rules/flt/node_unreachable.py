"""Some nodes of the fleet did not answer.

## What it checks
Whether every node answered in time. Groups: *dead* (not reachable), *slow* (reached, no answer in time),
*absent* (the Python of ``--python`` is not there), *refused* (a password, a host key), *busy* (taken by jobs, or too many connections) and *garbled* (too
long, not JSON, or another node's name). Nodes that fail for now are asked again, with pauses. *Refused* and *busy* say nothing
against a node: where there are no others, this is a warning, and the nodes are not excluded. Nodes that the scheduler lists as
drained, down or reserved do not count.

## Why it matters
Nothing is known about these nodes, and a job over the fleet waits for every node.

## How to fix
Check one node of each group. Give slow nodes more time with ``--timeout``, or exclude the nodes from jobs.

## References
- gpuready guide: fleet (docs/how-to/fleet.md)
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.model.node_names import expand_node_set, fold_node_names
from gpuready.rules import fleet_findings

CODE = "FLT001"
SEVERITY = "error"
READS = ("fleet.unreachable", "fleet.nodes")
REQUIRED_FACTS = ("fleet.unreachable",)
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
    names = fold_node_names(name for row in rows for name in expand_node_set(row["nodes"]))
    kinds: dict[str, int] = {}
    for row in rows:
        kinds[row["kind"]] = kinds.get(row["kind"], 0) + row["count"]
    how = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items())
    silent, of = fleet_findings.total_nodes(rows), facts.value_if_known("fleet.nodes") or 0
    return make_finding(
        f"{silent:,} of {of:,} nodes did not answer ({how}): {fleet_findings.shorten_node_set(names)}",
        found=(facts.fact("fleet.unreachable"),),
        needs=(Requirement("fleet.unreachable", "none", cite=fleet_findings.CITE),),
        so="nothing is known about these nodes, and a job over the fleet would wait for them",
        fix=(
            FixStep("check one node of each group; the reason is shown beside it"),
            FixStep("give slow nodes more time with --timeout"),
            FixStep("exclude them from jobs until then, with the exclude list of this report"),
        ),
        severity=SEVERITY if any(row.get("known", True) for row in rows) else "warning",
    )
