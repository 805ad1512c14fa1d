"""A link between nodes fails.

## What it checks
Whether a pair fails repeatedly while both nodes pass with others. Failures seen only once are listed in the report and do not count.

## Why it matters
A cable, port, route or switch between them is faulty. Both nodes work as long as no job uses both.

## How to fix
Check the port counters (``ibdiagnet``, ``ethtool -S``), reseat or replace the cable, and search again.

## References
- gpuready guide: fleet, bisect (docs/how-to/fleet.md)
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import fleet_findings

CODE = "FLT017"
SEVERITY = "error"
READS = ("fleet.suspects",)
REQUIRED_FACTS = ("fleet.suspects",)
BROKEN = {
    "fleet.suspects": (
        {
            "kind": "link",
            "names": ("n0003", "n0009"),
            "failed": 3,
            "passed": 0,
            "confirmed": True,
            "evidence": (),
            "gpu": None,
        },
    )
}
HEALTHY = {"fleet.suspects": ()}
KINDS = ("link",)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    suspect = fleet_findings.first_suspect(facts, KINDS)
    if suspect is None:
        return None
    row, tests, more = suspect
    return make_finding(
        f"the link between {' and '.join(row['names'])} fails: {row['failed']} of {tests} pairs across it failed{more}",
        found=(facts.fact("fleet.suspects"),),
        needs=(Requirement("fleet.suspects", "none", cite="gpuready fleet bisect: rounds of disjoint pairs"),),
        so="jobs that use both sides fail or hang, and jobs on one side do not",
        fix=(
            FixStep("check the port counters on the path: ibdiagnet, ethtool -S", note="needs root"),
            FixStep("do not use both sides in one job until then"),
        ),
    )
