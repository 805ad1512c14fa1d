"""The clocks of nodes differ.

## What it checks
The clock of each node against the fleet's median. More than two seconds is a warning, from five minutes on an
error.

## Why it matters
Logs of several nodes cannot be ordered, tokens and certificates are refused, munge and Kerberos reject
requests, and files on shared disks have future times.

## How to fix
Start the time service (chrony or systemd-timesyncd) and let it set the clock.

## References
- munged(8): credentials expire after their time-to-live
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import fleet_findings

CODE = "FLT009"
SEVERITY = "warning"
READS = ("fleet.clocks",)
REQUIRED_FACTS = ("fleet.clocks",)
BROKEN = {"fleet.clocks": ({"nodes": "n0017", "count": 1, "seconds": 47},)}
HEALTHY = {"fleet.clocks": ()}
REFUSED_AFTER_S = 300
"""Clock difference in seconds at which munge and Kerberos refuse credentials."""


def judge(facts: Facts, contract: Contract) -> Finding | None:
    rows = fleet_findings.fleet_rows(facts, "fleet.clocks")
    if not rows:
        return None
    row = max(rows, key=lambda one: abs(one["seconds"]))
    count, seconds = fleet_findings.total_nodes(rows), row["seconds"]
    way = "ahead" if seconds > 0 else "behind"
    lead = f"the clocks of {fleet_findings.format_count(count)} differ from the fleet's"
    return make_finding(
        f"{lead}: {fleet_findings.shorten_node_set(row['nodes'])} {abs(seconds):,} s {way}",
        found=(facts.fact("fleet.clocks"),),
        needs=(
            Requirement("fleet.clocks", "none", level="recommended", cite="munge(7): credentials live 300 seconds"),
        ),
        so="logs cannot be put in order, and credentials may be refused",
        fix=(FixStep("start chrony or systemd-timesyncd on the node and let it set the clock", note="needs root"),),
        severity="error" if abs(seconds) >= REFUSED_AFTER_S else SEVERITY,
    )
