"""Some nodes of the fleet are not ready by their own check.

## What it checks
The findings of ``gpuready check`` on each node that stop a job, grouped by code. Codes in question (FLT013)
are not counted.

## Why it matters
A job on these nodes fails for the reason that the code names.

## How to fix
Run ``gpuready check -v`` on one node of a group for the evidence and the fix, and ``gpuready explain CODE``
for the code. The exclude list of the report keeps jobs away until then.

## References
- gpuready reference: rules (docs/reference/rules.md)
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import fleet_findings

CODE = "FLT015"
SEVERITY = "error"
READS = ("fleet.codes", "fleet.widespread")
REQUIRED_FACTS = ("fleet.codes",)
BROKEN = {"fleet.codes": ({"code": "DRV001", "nodes": "n[0003-0004]", "count": 2, "of": 1000},), "fleet.widespread": ()}
HEALTHY = BROKEN | {"fleet.codes": ()}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    failing = fleet_findings.fleet_rows(facts, "fleet.codes")
    doubted = {row["code"] for row in fleet_findings.fleet_rows(facts, "fleet.widespread")} if failing else set()
    rows = [row for row in failing if row["code"] not in doubted]
    if not rows:
        return None
    row = rows[0]
    more = f", and {fleet_findings.format_count(len(rows) - 1, 'other code')}" if len(rows) > 1 else ""
    return make_finding(
        f"{row['count']:,} of {row['of']:,} nodes have {row['code']}: {fleet_findings.shorten_node_set(row['nodes'])}{more}",
        found=(facts.fact("fleet.codes"),),
        needs=(Requirement("fleet.codes", "none", cite="the requirements of the framework that was checked"),),
        so="a job on these nodes fails for the reason that the code names",
        fix=(
            FixStep("read what it means and how to fix it", ("gpuready", "explain", row["code"])),
            FixStep("exclude them from jobs until then, with the exclude list of this report"),
        ),
    )
