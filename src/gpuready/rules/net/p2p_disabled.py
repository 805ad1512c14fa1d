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

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement
from gpuready.rules import environment_variables, gpu_health, job_topology, rdma_ports, visible_gpus

CODE = "NET010"
SEVERITY = "warning"
READS = ("gpu.nvlink", *rdma_ports.READS, *job_topology.READS)
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
    return Finding(
        CODE,
        SEVERITY,
        f"switched off by {settings}, and here: {visible_gpus.join_names([TRANSPORTS[name] for name in disabled])}",
        found=tuple(facts.fact(f"env.{name}") for name in disabled),
        needs=tuple(
            Requirement(f"env.{n}", "0", level="recommended", cite=f"NCCL user guide, environment variables, {n}")
            for n in disabled
        ),
        so="GPUs talk through host memory or over Ethernet, many times slower than they could",
        fix=(FixStep(f"unset {' '.join(disabled)}"),),
    )


def _transport_available(facts: Facts, contract: Contract, name: str) -> bool:
    """Return whether the transport that a switch disables is present and would be used."""
    if name == "NCCL_IB_DISABLE":
        if not job_topology.is_multi_node(facts, contract):
            return False
        return any(row.get("state") == "active" for row in rdma_ports.infiniband_ports(facts).values())
    if len(visible_gpus.list_visible_gpus(facts)) < 2:
        return False
    if any(count > 0 for count in gpu_health.reported_values(facts, "gpu.nvlink").values()):
        return True
    gpu_health.require_reported(facts, "gpu.nvlink")
    return False
