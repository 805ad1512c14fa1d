"""An InfiniBand port is not active.

## What it checks
The state of each InfiniBand port. It is a warning for a job on several machines, else information, because
machines can have spare ports. RoCE ports are not checked.

## Why it matters
NCCL uses only active ports. Without one it uses Ethernet sockets, ten to a hundred times slower, and reports
it only with NCCL_DEBUG=INFO.

## How to fix
``ibstat`` shows the ports. *Initializing* means that no subnet manager (opensm) runs; *Down* means cable or
switch. Select the ports in use with NCCL_IB_HCA.

## References
- NCCL user guide, Troubleshooting: Networking Troubleshooting
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import job_topology, network_interfaces, visible_gpus

CODE = "NET004"
SEVERITY = "warning"
READS = (*network_interfaces.RDMA_READS, *job_topology.READS)
REQUIRED_FACTS = ("net.ib",)
BROKEN = {
    "job.wants": ("multi-node",),
    "net.ib": {"mlx5_0/1": {"state": "init", "link_layer": "InfiniBand", "rate": None, "netdev": "ib0"}},
}
HEALTHY = BROKEN | {
    "net.ib": {"mlx5_0/1": {"state": "active", "link_layer": "InfiniBand", "rate": None, "netdev": "ib0"}}
}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "net.ib" not in facts:
        return None
    ports = network_interfaces.infiniband_ports(facts)
    idle = {name: row["state"] for name, row in ports.items() if row.get("state") not in (None, "active")}
    if not idle:
        return None
    several = job_topology.is_multi_node(facts, contract)
    which = visible_gpus.join_names([f"{name} ({state})" for name, state in idle.items()])
    how_many = "no port" if len(idle) == len(ports) else "not every port"
    return make_finding(
        f"{how_many} of InfiniBand is active: {which}",
        found=(facts.fact("net.ib"),),
        needs=(
            Requirement("net.ib", "active", level="recommended", cite="NCCL user guide, Networking Troubleshooting"),
        ),
        so="NCCL does not use these ports, and uses Ethernet if no other is active",
        fix=(
            FixStep("run ibstat: Initializing means no subnet manager, Down means cable or switch"),
            FixStep("select the ports in use with NCCL_IB_HCA"),
        ),
        severity=SEVERITY if several else "info",
    )
