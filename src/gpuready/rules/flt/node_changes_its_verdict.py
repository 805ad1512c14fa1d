"""A node gave different verdicts on itself within one run.

It was asked more than once, because an answer was lost or figures were confirmed, and did not say the same each time:
ready, then not. Something on it comes and goes: a GPU that falls off the bus and returns, a disk that hangs, a
service that restarts, memory that others hold for a while.

It is a warning; the worse of its verdicts counts. Such nodes pass a check by luck and fail in the job. Watch the node's
kernel log, and ask it again: ``gpuready fleet check --nodes NAME``.
"""

from __future__ import annotations

from gpuready.model import Finding, Need, Step
from gpuready.rules import fleetwide

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts

CODE = "FLT014"
SEVERITY = "warning"
READS = ("fleet.flaps",)
SIGNS = ()
BROKEN = {"fleet.flaps": ({"said": "clear and not-ready", "nodes": "n0007", "count": 1},)}
HEALTHY = {"fleet.flaps": ()}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    found = fleetwide.rows(facts, "fleet.flaps")
    if not found:
        return None
    count = fleetwide.total(found)
    row = found[0]
    return Finding(
        CODE,
        SEVERITY,
        f"{fleetwide.plural(count)} said {row['said']} of {'itself' if count == 1 else 'themselves'}: {fleetwide.nodes(row['nodes'])}",
        found=(facts.fact("fleet.flaps"),),
        needs=(Need("fleet.flaps", "none", level="recommended", cite=fleetwide.CITE),),
        so="such a node may pass the next check and fail in the job",
        fix=(Step("look at the kernel's log of the node, and ask it again"),),
    )
