"""A node or a GPU fails an all-reduce with every partner.

## What it checks
Whether one node fails with several partners that pass with others. The fleet is split into pairs, in rounds
with new partners, and each pair runs an all-reduce; a node that failed then meets good ones. It is bad if it
fails with two of them too. Failures with bad partners, and pairs that were slow or ran out of time, do not count.

## Why it matters
The fault is the node's own: a network card, a GPU, a cable or a setting. Any job with this node fails or
hangs.

## How to fix
Check its network card and ``gpuready fleet check``, and exclude it until it passes.

## References
- gpuready guide: fleet, bisect (docs/how-to/fleet.md)
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import fleet_findings

CODE = "FLT016"
SEVERITY = "error"
READS = ("fleet.suspects",)
REQUIRED_FACTS = ("fleet.suspects",)
BROKEN = {
    "fleet.suspects": (
        {"kind": "node", "names": ("n0412",), "failed": 3, "passed": 0, "confirmed": True, "evidence": (), "gpu": None},
    )
}
HEALTHY = {"fleet.suspects": ()}
KINDS = ("node", "gpu")


def judge(facts: Facts, contract: Contract) -> Finding | None:
    suspect = fleet_findings.first_suspect(facts, KINDS)
    if suspect is None:
        return None
    row, tests, more = suspect
    which = row["names"][0] + (f" GPU {row['gpu']}" if row.get("gpu") is not None else "")
    return make_finding(
        f"{which} failed {row['failed']} of {tests} pairs, with partners that pass with others{more}",
        found=(facts.fact("fleet.suspects"),),
        needs=(Requirement("fleet.suspects", "none", cite="gpuready fleet bisect: rounds of disjoint pairs"),),
        so="any job with this node fails or hangs in its first collectives",
        fix=(
            FixStep("check its network cards, cables and GPUs, and run gpuready fleet check"),
            FixStep("exclude it from jobs until then, with the exclude list of this report"),
        ),
    )
