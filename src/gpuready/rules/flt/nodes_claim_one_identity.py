"""Two or more nodes claim the same name or the same GPU.

## What it checks
Whether a node answered under another's name, two nodes have one host name, or the same GPU appears on both.
Addresses and aliases in the host list are not reported.

## Why it matters
A machine would be counted twice, and two ranks on one GPU stop NCCL (``Duplicate GPU detected``). What such a
node reported under another's name is ignored.

## How to fix
Name each machine once in the host list, give cloned machines their own names, and give each container its own
GPUs.

## References
- NCCL: Duplicate GPU detected
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import fleet_findings

CODE = "FLT012"
SEVERITY = "error"
READS = ("fleet.conflicts",)
REQUIRED_FACTS = ("fleet.conflicts",)
BROKEN = {"fleet.conflicts": ({"what": "8 GPUs", "nodes": "n[0041-0042]"},)}
HEALTHY = {"fleet.conflicts": ()}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    rows = fleet_findings.fleet_rows(facts, "fleet.conflicts")
    if not rows:
        return None
    row = rows[0]
    more = f", and {len(rows) - 1} more" if len(rows) > 1 else ""
    return make_finding(
        f"several nodes claim {fleet_findings.shorten_value(row['what'], 50)}: {fleet_findings.shorten_node_set(row['nodes'])}{more}",
        found=(facts.fact("fleet.conflicts"),),
        needs=(Requirement("fleet.conflicts", "none", cite="NCCL: Duplicate GPU detected"),),
        so="one machine or GPU is counted twice, and a job over both fails",
        fix=(
            FixStep("name each machine once in the host list, and give cloned machines their own names"),
            FixStep("give each container its own GPUs"),
        ),
    )
