"""A fast road between the GPUs is switched off by a variable.

NCCL_P2P_DISABLE=1 keeps NCCL from letting GPUs reach each other directly, and NCCL_IB_DISABLE=1 from using
InfiniBand. Both help where such a road is broken: consumer cards with an old driver, a virtual machine, a bad
cable. Left set on a machine with NVLink or InfiniBand, they send everything through the memory of the host or
over Ethernet, many times slower, and nothing complains.

It is a warning where NVLink connections are up, or where a job on several machines has an active port of
InfiniBand. Unset the variable, and see with NCCL_DEBUG=INFO which road is taken. If the job then hangs, the
road is broken and wants repair, not the switch.
"""

from __future__ import annotations

from gpuready.model import Finding, Need, Step
from gpuready.rules import cards, health, nodes, rdma, shell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts

CODE = "NET010"
SEVERITY = "warning"
READS = ("gpu.nvlink", *rdma.READS, *nodes.READS)
SIGNS = ()
BROKEN = {
    "env.names": ("NCCL_P2P_DISABLE",),
    "env.NCCL_P2P_DISABLE": "1",
    "gpu.count": 2,
    "gpu.visible": (0, 1),
    "gpu.nvlink": (18, 18),
}
HEALTHY = BROKEN | {"env.NCCL_P2P_DISABLE": "0"}
ROADS = {"NCCL_P2P_DISABLE": "NVLink", "NCCL_IB_DISABLE": "InfiniBand"}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if shell.unseen(facts):
        return None
    closed = [name for name in ROADS if shell.switched_on(facts, name) and _there(facts, contract, name)]
    if not closed:
        return None
    said = cards.listed([f"{name}={shell.value(facts, name)}" for name in closed])
    return Finding(
        CODE,
        SEVERITY,
        f"switched off by {said}, and here: {cards.listed([ROADS[name] for name in closed])}",
        found=tuple(facts.fact(f"env.{name}") for name in closed),
        needs=tuple(
            Need(f"env.{n}", "0", level="recommended", cite=f"NCCL user guide, environment variables, {n}")
            for n in closed
        ),
        so="GPUs talk through host memory or over Ethernet, many times slower than they could",
        fix=(Step(f"unset {' '.join(closed)}"),),
    )


def _there(facts: Facts, contract: Contract, name: str) -> bool:
    """Return whether the transport that a switch disables is present and would be used."""
    if name == "NCCL_IB_DISABLE":
        if not nodes.several(facts, contract):
            return False
        return any(row.get("state") == "active" for row in rdma.infiniband(facts).values())
    if len(cards.shown(facts)) < 2:
        return False
    if any(count > 0 for count in health.told(facts, "gpu.nvlink").values()):
        return True
    health.settled(facts, "gpu.nvlink")
    return False
