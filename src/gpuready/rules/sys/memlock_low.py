"""The limit on locked memory is low for InfiniBand.

## What it checks
The limit on locked memory, for a job on several machines with an active InfiniBand or RoCE port. Below 64 MiB
is a warning. root and processes with CAP_IPC_LOCK have no limit.

## Why it matters
RDMA needs locked memory. With the usual 64 KiB or 8 MiB, NCCL cannot register its buffers: ``Call to
ibv_reg_mr failed`` or ``ibv_create_cq failed``, often with ``Cannot allocate memory``.

## How to fix
Set ``memlock unlimited`` in /etc/security/limits.conf, LimitMEMLOCK for slurmd, or ``--ulimit memlock=-1``
for a container.

## References
- Linux Documentation/infiniband/user_verbs.rst: memory pinning
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import environment_variables, job_topology, network_interfaces

CODE = "SYS007"
SEVERITY = "warning"
READS = ("limit.memlock", "net.ib", *job_topology.READS)
REQUIRED_FACTS = ("net.ib",)
BROKEN = {
    "job.wants": ("multi-node",),
    "limit.memlock": 8 << 20,
    "net.ib": {"mlx5_0/1": {"state": "active", "link_layer": "InfiniBand"}},
    "env.names": (),
}
HEALTHY = BROKEN | {"limit.memlock": -1}
ENOUGH = 64 << 20


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "limit.memlock" not in facts:
        return None
    limit = facts.value("limit.memlock")
    if limit is None or limit < 0 or limit >= ENOUGH or not job_topology.is_multi_node(facts, contract):
        return None
    if not network_interfaces.active_rdma_ports(facts) or _infiniband_disabled(facts):
        return None
    cite = "Linux Documentation/infiniband/user_verbs.rst: memory pinning"
    return make_finding(
        f"the limit of {limit >> 10} KiB locked memory is too low for InfiniBand",
        found=(facts.fact("limit.memlock"), facts.fact("net.ib")),
        needs=(Requirement("limit.memlock", ">=64MiB", level="recommended", cite=cite),),
        so="NCCL cannot register its buffers with the network card and fails to connect",
        fix=(
            FixStep("set memlock to unlimited in /etc/security/limits.conf and log in again", note="needs root"),
            FixStep("start the container with --ulimit memlock=-1", note="outside the container"),
        ),
    )


def _infiniband_disabled(facts: Facts) -> bool:
    """Return whether NCCL is configured not to use such cards, which NET010 reports."""
    return not environment_variables.environment_unknown(facts) and environment_variables.is_switch_on(
        facts, "NCCL_IB_DISABLE"
    )
