"""The network interface that NCCL would use does not reach other machines.

## What it checks
Which interface NCCL would choose for a job on several machines without NCCL_SOCKET_IFNAME: InfiniBand first,
then any that is not docker, lo or virbr, in the kernel's order. Bridges with a real card (br0, vmbr0, bond0)
are not reported. It is a warning.

## Why it matters
On machines with containers or VMs a local bridge (br-..., virbr0, veth..., podman0) may come first. Each node
then announces an address that the others cannot reach, and all wait until a timeout.

## How to fix
Set NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME to the interface that the nodes share.

## References
- NCCL user guide, environment variables, NCCL_SOCKET_IFNAME
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import job_topology, network_interfaces

CODE = "NET003"
SEVERITY = "warning"
READS = ("net.interface", *network_interfaces.READS, *job_topology.READS)
REQUIRED_FACTS = (
    "job.wants",
    "env.RANK",
    "env.LOCAL_RANK",
    "env.WORLD_SIZE",
    "env.LOCAL_WORLD_SIZE",
    "env.MASTER_PORT",
    "env.MASTER_ADDR",
)
BROKEN = {"job.wants": ("multi-node",), "net.interface": "docker0", "net.interfaces": {}}
HEALTHY = BROKEN | {"net.interface": "enp1s0f0"}
HOST_ONLY_PREFIXES = ("docker", "virbr", "veth", "podman", "cni-podman", "lxcbr", "lxdbr")
HASH_LENGTH = 12
"""Docker names a network bridge ``br-`` and twelve hexadecimal digits."""


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "net.interface" not in facts or not job_topology.is_multi_node(facts, contract):
        return None
    name = facts.value("net.interface")
    if not name or not _is_host_only(str(name)):
        return None
    best = network_interfaces.best_interface(facts.value_if_known("net.interfaces") or {})
    return make_finding(
        f"the interface that NCCL would use, {name}, is local to this machine",
        found=(facts.fact("net.interface"), facts.fact("net.interfaces")),
        needs=(
            Requirement(
                "net.interface", best or "*", level="recommended", cite=network_interfaces.CITE["NCCL_SOCKET_IFNAME"]
            ),
        ),
        so="other nodes get an address that they cannot reach, and all wait until the timeout",
        fix=(
            FixStep(f"set NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME to {best or 'the interface that the nodes share'}"),
        ),
    )


def _is_host_only(name: str) -> bool:
    digest = name.removeprefix("br-")
    bridge = digest != name and len(digest) == HASH_LENGTH and all(c in "0123456789abcdef" for c in digest)
    return name == "lo" or name.startswith(HOST_ONLY_PREFIXES) or bridge
