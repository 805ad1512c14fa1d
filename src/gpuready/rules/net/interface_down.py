"""The network interface that the job would use is down or has no address.

## What it checks
Whether the interfaces that NCCL_SOCKET_IFNAME or GLOO_SOCKET_IFNAME allow are up, have a link and an IP
address. For a job on several machines, also whether any interface does. It is an error for a job with several
processes, else a warning.

## Why it matters
NCCL finds no interface and stops. Examples: a port without a cable, an InfiniBand interface (ib0) without IP,
a bridge without members.

## How to fix
``ip -br address`` lists the interfaces. Bring the interface up and give it an address, or name another one.

## References
- NCCL user guide, environment variables, NCCL_SOCKET_IFNAME
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import environment_variables, job_topology, network_interfaces, visible_gpus

CODE = "NET002"
SEVERITY = "error"
READS = (*network_interfaces.READS, "net.interface", *job_topology.READS)
REQUIRED_FACTS = (
    "env.NCCL_SOCKET_IFNAME", "env.GLOO_SOCKET_IFNAME", "job.wants", "env.NNODES", "env.SLURM_JOB_NUM_NODES", "env.SLURM_NNODES", "env.WORLD_SIZE",
)  # fmt: skip
BROKEN = {
    "job.wants": ("multi-node",),
    "env.names": ("NCCL_SOCKET_IFNAME",),
    "env.NCCL_SOCKET_IFNAME": "ib0",
    "net.interfaces": {
        "ib0": {"up": False, "kind": "infiniband", "addresses": []},
        "eth0": {"up": True, "kind": "ethernet", "addresses": ["10.0.0.7"]},
    },
}
HEALTHY = BROKEN | {"net.interfaces": {"ib0": {"up": True, "kind": "infiniband", "addresses": ["10.1.0.7"]}}}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if environment_variables.environment_unknown(facts):
        return None
    requested = network_interfaces.requested_interfaces(facts)
    if not requested:
        return _no_interface_finding(facts, contract)
    table = facts.value("net.interfaces") or {}
    unusable = {name: _unusable_interfaces(name, text, table) for name, text in requested.items()}
    wrong = {name: names_down for name, names_down in unusable.items() if names_down}
    if not wrong:
        return None
    which = list(dict.fromkeys(i for names_down in wrong.values() for i in names_down))
    best = network_interfaces.best_interface(table)
    return make_finding(
        f"every interface that {visible_gpus.join_names(list(wrong))} allows is down or has no address: {visible_gpus.join_names(which)}",
        found=(*(facts.fact(f"env.{name}") for name in wrong), facts.fact("net.interfaces")),
        needs=tuple(
            Requirement("net.interfaces", "up, with an address", cite=network_interfaces.CITE[name]) for name in wrong
        ),
        so="the processes of a job cannot connect to each other",
        fix=(
            *([FixStep(f"set {' and '.join(wrong)} to {best}")] if best else []),
            FixStep(f"bring {which[0]} up and give it an address", note="needs root"),
        ),
        severity=SEVERITY if job_topology.has_parallel_processes(facts) else "warning",
    )


def _unusable_interfaces(variable: str, text: str, table: network_interfaces.InterfaceTable) -> list[str]:
    """Return the allowed interfaces if none of them works; NET001 reports missing ones."""
    allowed = network_interfaces.allowed_interfaces(variable, text, table) or []
    working = [name for name in allowed if network_interfaces.is_interface_ready(table[name])]
    if variable == "GLOO_SOCKET_IFNAME":
        return [name for name in allowed if name not in working]
    return [] if working else allowed


def _no_interface_finding(facts: Facts, contract: Contract) -> Finding | None:
    """Return a finding if a multi-node job runs where NCCL sees no interface."""
    if "net.interface" not in facts or not job_topology.is_multi_node(facts, contract):
        return None
    if facts.value("net.interface") is not None:
        return None
    return make_finding(
        "no network interface of this machine is up and has an address",
        found=(facts.fact("net.interface"), facts.fact("net.interfaces")),
        needs=(Requirement("net.interface", "*", cite=network_interfaces.CITE["NCCL_SOCKET_IFNAME"]),),
        so="no other machine can be reached, and the job cannot connect",
        fix=(FixStep("bring an interface up and give it an address", note="needs root"),),
    )
