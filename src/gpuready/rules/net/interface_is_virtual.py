"""The network interface that NCCL would take leads to no other machine.

Without NCCL_SOCKET_IFNAME, NCCL takes interfaces of InfiniBand first, then any that is not docker, lo or
virbr, in the order of the kernel. On machines with containers or virtual machines that order may put a
bridge first that exists on this machine alone (br-..., virbr0, veth..., podman0); without any other it
falls back to docker0 and to lo. Every node then tells the others an address that leads nowhere, and they
wait for each other until the time is out.

It is a warning for a job on several machines. Bridges that carry a real card (br0, vmbr0, bond0) are not
counted. Set NCCL_SOCKET_IFNAME, and GLOO_SOCKET_IFNAME with it, to the interface that the nodes share.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement
from gpuready.rules import job_topology, network_interfaces

CODE = "NET003"
SEVERITY = "warning"
READS = ("net.interface", *network_interfaces.READS, *job_topology.READS)
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
    return Finding(
        CODE,
        SEVERITY,
        f"the interface that NCCL would take, {name}, exists on this machine alone",
        found=(facts.fact("net.interface"), facts.fact("net.interfaces")),
        needs=(
            Requirement(
                "net.interface", best or "*", level="recommended", cite=network_interfaces.CITE["NCCL_SOCKET_IFNAME"]
            ),
        ),
        so="the other nodes are told an address that they cannot reach, and all wait until the time is out",
        fix=(FixStep(f"set NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME to {best or 'the interface that they share'}"),),
    )


def _is_host_only(name: str) -> bool:
    digest = name.removeprefix("br-")
    bridge = digest != name and len(digest) == HASH_LENGTH and all(c in "0123456789abcdef" for c in digest)
    return name == "lo" or name.startswith(HOST_ONLY_PREFIXES) or bridge
