"""A fast connection between the GPUs is turned off by a variable.

## What it checks
Whether NCCL_P2P_DISABLE=1 is set while NVLink is up, or NCCL_IB_DISABLE=1 on a job over several machines with
an active InfiniBand port. It is a warning.

## Why it matters
Everything goes through host memory or over Ethernet, many times slower, and nothing reports it. The variables
are workarounds for a broken connection: consumer cards with an old driver, a VM, a bad cable.

## How to fix
Unset the variable and check the transport with NCCL_DEBUG=INFO. If the job then hangs, repair the connection.

## References
- NCCL user guide, environment variables, NCCL_P2P_DISABLE and NCCL_IB_DISABLE
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import environment_variables, gpu_health, job_topology, network_interfaces, visible_gpus

CODE = "NET010"
SEVERITY = "warning"
READS = ("gpu.nvlink", *network_interfaces.RDMA_READS, *job_topology.READS)
REQUIRED_FACTS = ("gpu.count",)
BROKEN = {
    "env.names": ("NCCL_P2P_DISABLE",),
    "env.NCCL_P2P_DISABLE": "1",
    "gpu.count": 2,
    "gpu.visible": (0, 1),
    "gpu.nvlink": (18, 18),
}
HEALTHY = BROKEN | {"env.NCCL_P2P_DISABLE": "0"}
TRANSPORTS = {"NCCL_P2P_DISABLE": "NVLink", "NCCL_IB_DISABLE": "InfiniBand"}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if environment_variables.environment_unknown(facts):
        return None
    disabled = [
        name
        for name in TRANSPORTS
        if environment_variables.is_switch_on(facts, name) and _transport_available(facts, contract, name)
    ]
    if not disabled:
        return None
    settings = visible_gpus.join_names(
        [f"{name}={environment_variables.read_variable(facts, name)}" for name in disabled]
    )
    return make_finding(
        f"turned off by {settings}, although available: {visible_gpus.join_names([TRANSPORTS[name] for name in disabled])}",
        found=tuple(facts.fact(f"env.{name}") for name in disabled),
        needs=tuple(
            Requirement(f"env.{n}", "0", level="recommended", cite=f"NCCL user guide, environment variables, {n}")
            for n in disabled
        ),
        so="GPUs communicate through host memory or Ethernet, many times slower",
        fix=(FixStep(f"unset {' '.join(disabled)}"),),
    )


def _transport_available(facts: Facts, contract: Contract, name: str) -> bool:
    """Return whether the transport that a switch disables is present and would be used."""
    if name == "NCCL_IB_DISABLE":
        if not job_topology.is_multi_node(facts, contract):
            return False
        return any(row.get("state") == "active" for row in network_interfaces.infiniband_ports(facts).values())
    if len(visible_gpus.list_visible_gpus(facts)) < 2:
        return False
    if any(count > 0 for count in gpu_health.reported_values(facts, "gpu.nvlink").values()):
        return True
    gpu_health.require_reported(facts, "gpu.nvlink")
    return False
