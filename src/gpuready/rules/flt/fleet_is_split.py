"""The fleet is in two parts.

## What it checks
Whether a fact has no clear majority value: two or more large groups of nodes each have their own. A fact that
is different on nearly every node is listed too. It is a warning.

## Why it matters
No node is broken, but a job over both parts runs with both values. It is typical of a rolling upgrade or of
two deliveries of machines.

## How to fix
Finish the upgrade, put the parts into separate partitions, or compare with a recording of the wanted state
(``--reference FILE``).

## References
- gpuready guide: fleet (docs/how-to/fleet.md)
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import fleet_findings

CODE = "FLT006"
SEVERITY = "warning"
READS = ("fleet.drift",)
REQUIRED_FACTS = ("fleet.drift",)
BROKEN = {
    "fleet.drift": (
        {
            "area": "driver", "key": "driver.version", "want": "580.95.05", "of": 1000, "peers": "all", "against": "majority",
            "split": True, "groups": ({"value": "550.54.15", "nodes": "n[0501-1000]", "count": 500},),
        },
    )
}  # fmt: skip
HEALTHY = {"fleet.drift": ()}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    rows = [row for row in fleet_findings.fleet_rows(facts, "fleet.drift") if row["split"]]
    if not rows:
        return None
    row = max(rows, key=lambda one: sum(group["count"] for group in one["groups"]))
    sizes = [group["count"] for group in row["groups"]]
    parts = [f"{row['of'] - sum(sizes):,} have {fleet_findings.shorten_value(row['want'])}"]
    parts += [f"{group['count']:,} {fleet_findings.shorten_value(group['value'])}" for group in row["groups"][:2]]
    more = f", and {len(rows) - 1} more" if len(rows) > 1 else ""
    return make_finding(
        f"the fleet is split in {row['key'][:40]}: {', '.join(parts)}{more}",
        found=(facts.fact("fleet.drift"),),
        needs=(Requirement("fleet.drift", "one value for each fact", level="recommended", cite=fleet_findings.CITE),),
        so="a job over both parts runs with both values",
        fix=(
            FixStep("finish the upgrade, or put the parts into separate partitions"),
            FixStep("compare with a recording of the wanted state: --reference FILE"),
        ),
    )
