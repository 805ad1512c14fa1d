"""The clocks of nodes differ.

A node wrote its answer while we waited for it, so its clock must show a moment of that time. On these it does not, by
more than two seconds against the middle of the fleet. Logs of several nodes then cannot be put in order, tokens and
certificates are refused, munge and Kerberos turn requests away, and files on shared disks come from the future.

It is a warning, and an error from five minutes on, where munge and Kerberos refuse. A few milliseconds are nobody's
business. Start the time service (chrony or systemd-timesyncd) and let it step the clock.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement
from gpuready.rules import fleet_findings

CODE = "FLT009"
SEVERITY = "warning"
READS = ("fleet.clocks",)
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
    return Finding(
        CODE,
        "error" if abs(seconds) >= REFUSED_AFTER_S else SEVERITY,
        f"{lead}: {fleet_findings.shorten_node_set(row['nodes'])} {abs(seconds):,} s {way}",
        found=(facts.fact("fleet.clocks"),),
        needs=(
            Requirement("fleet.clocks", "none", level="recommended", cite="munge(7): credentials live 300 seconds"),
        ),
        so="logs cannot be put in order, and credentials may be refused",
        fix=(FixStep("start chrony or systemd-timesyncd on the node and let it set the clock", note="needs root"),),
    )
