"""The clocks of nodes differ.

A node wrote its answer while we waited for it, so its clock must show a moment of that time. On these it does not, by
more than two seconds against the middle of the fleet. Logs of several nodes then cannot be put in order, tokens and
certificates are refused, munge and Kerberos turn requests away, and files on shared disks come from the future.

It is a warning, and an error from five minutes on, where munge and Kerberos refuse. A few milliseconds are nobody's
business. Start the time service (chrony or systemd-timesyncd) and let it step the clock.
"""

from __future__ import annotations

from gpuready.model import Finding, Need, Step
from gpuready.rules import fleetwide

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts

CODE = "FLT009"
SEVERITY = "warning"
READS = ("fleet.clocks",)
SIGNS = ()
BROKEN = {"fleet.clocks": ({"nodes": "n0017", "count": 1, "seconds": 47},)}
HEALTHY = {"fleet.clocks": ()}
REFUSED = 300
"""Clock difference in seconds at which munge and Kerberos refuse credentials."""


def judge(facts: Facts, contract: Contract) -> Finding | None:
    found = fleetwide.rows(facts, "fleet.clocks")
    if not found:
        return None
    row = max(found, key=lambda one: abs(one["seconds"]))
    count, seconds = fleetwide.total(found), row["seconds"]
    way = "ahead" if seconds > 0 else "behind"
    lead = f"the clocks of {fleetwide.plural(count)} differ from the fleet's"
    return Finding(
        CODE,
        "error" if abs(seconds) >= REFUSED else SEVERITY,
        f"{lead}: {fleetwide.nodes(row['nodes'])} {abs(seconds):,} s {way}",
        found=(facts.fact("fleet.clocks"),),
        needs=(
            Need("fleet.clocks", "none", level="recommended", cite="munge(7): credentials live 300 seconds"),
        ),
        so="logs cannot be put in order, and credentials may be refused",
        fix=(
            Step("start chrony or systemd-timesyncd on the node and let it set the clock", note="needs root"),
        ),
    )
