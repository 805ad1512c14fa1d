"""The network cards cannot access GPU memory directly.

## What it checks
Whether GPUDirect RDMA works for a job on several machines with InfiniBand or RoCE: the kernel module
nvidia_peermem, or DMA-BUF (Linux 5.12, the open kernel modules, NCCL 2.13). It is a warning; the job works
without it.

## Why it matters
NCCL copies everything through host memory, at half the speed or less, and reports it only with
NCCL_DEBUG=INFO. The module comes with the driver but is not loaded by default.

## How to fix
Load the module on the host (``modprobe nvidia_peermem``), or use the open kernel modules.

## References
- NCCL user guide, Troubleshooting: GPU troubleshooting
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding, versions
from gpuready.rules import job_topology, network_interfaces

CODE = "NET005"
SEVERITY = "warning"
READS = ("net.peermem", "os.kernel", "driver.kind", *network_interfaces.RDMA_READS, *job_topology.READS)
REQUIRED_FACTS = ("net.ib",)
BROKEN = {
    "job.wants": ("multi-node",),
    "gpu.count": 8,
    "net.ib": {"mlx5_0/1": {"state": "active", "link_layer": "InfiniBand"}},
    "net.peermem": False,
    "os.kernel": "5.4.0",
    "driver.kind": "proprietary",
}
HEALTHY = BROKEN | {"net.peermem": True}
SINCE = "5.12"


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if (
        "cuda" not in contract.platforms
        or "net.peermem" not in facts
        or not job_topology.is_multi_node(facts, contract)
    ):
        return None
    if (
        facts.value("net.peermem") is not False
        or not facts.value("gpu.count")
        or not network_interfaces.active_rdma_ports(facts)
    ):
        return None
    if _has_dma_buf(facts):
        return None
    return make_finding(
        "network cards cannot access GPU memory: no nvidia_peermem module and no DMA-BUF",
        found=tuple(facts.fact(key) for key in ("net.peermem", "os.kernel", "driver.kind")),
        needs=(Requirement("net.peermem", "true", level="recommended", cite="NCCL user guide, GPU troubleshooting"),),
        so="data between machines is copied through host memory, at half the speed or less",
        fix=(
            FixStep("load the module: modprobe nvidia_peermem", note="needs root, on the host"),
            FixStep(f"use the open kernel modules of the driver with Linux {SINCE} or newer", note="needs root"),
        ),
    )


def _has_dma_buf(facts: Facts) -> bool:
    """Return whether DMA-BUF can be used: a recent kernel, and not the proprietary modules."""
    kernel = facts.value("os.kernel")
    new = kernel is not None and versions.compare_versions(str(kernel), SINCE) >= 0
    return new and facts.value("driver.kind") != "proprietary"
