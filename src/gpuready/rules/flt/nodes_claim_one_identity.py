"""Two or more nodes claim one name or one GPU for themselves.

A node answered under the name of another, two nodes bear one host name, or the same GPU shows up on both. The list of
hosts may name one machine twice, machines may have been cloned with their names, or two containers were given one
GPU. Each of them would be counted twice, and two ranks on one GPU stop NCCL (``Duplicate GPU detected``).

It is an error, and what such a node said under another's name is not believed. Names in the list that nobody in the
fleet has, such as addresses and aliases, are no case of it.
"""

from __future__ import annotations

from gpuready.model import Finding, Need, Step
from gpuready.rules import fleetwide

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts

CODE = "FLT012"
SEVERITY = "error"
READS = ("fleet.conflicts",)
SIGNS = ()
BROKEN = {"fleet.conflicts": ({"what": "8 GPUs", "nodes": "n[0041-0042]"},)}
HEALTHY = {"fleet.conflicts": ()}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    found = fleetwide.rows(facts, "fleet.conflicts")
    if not found:
        return None
    row = found[0]
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    return Finding(
        CODE,
        SEVERITY,
        f"several nodes claim {fleetwide.short(row['what'], 50)}: {fleetwide.nodes(row['nodes'])}{more}",
        found=(facts.fact("fleet.conflicts"),),
        needs=(Need("fleet.conflicts", "none", cite="NCCL: Duplicate GPU detected"),),
        so="one machine or GPU is counted twice, and a job over both stops",
        fix=(
            Step("name each machine once in the list of hosts, and give cloned machines names of their own"),
            Step("give each container GPUs of its own"),
        ),
    )
