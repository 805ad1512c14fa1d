"""A variable names a network interface that does not exist here.

## What it checks
Whether NCCL_SOCKET_IFNAME (prefixes, exact names with ``=``, exclusions with ``^``) and GLOO_SOCKET_IFNAME
(names) match an interface of this machine. It is an error for a job with several processes, even on one
machine, and a warning for a single process.

## Why it matters
NCCL looks no further and stops: ``Bootstrap : no socket interface found``. The value was right on another
machine, or before an upgrade renamed eth0 to enp1s0f0.

## How to fix
Name an existing interface, or unset the variable so that NCCL chooses.

## References
- NCCL user guide, environment variables, NCCL_SOCKET_IFNAME
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import environment_variables, job_topology, network_interfaces, visible_gpus

CODE = "NET001"
SEVERITY = "error"
READS = (*network_interfaces.READS, *job_topology.READS)
REQUIRED_FACTS = ("env.NCCL_SOCKET_IFNAME", "env.GLOO_SOCKET_IFNAME")
BROKEN = {
    "job.wants": ("multi-gpu",),
    "env.names": ("NCCL_SOCKET_IFNAME",),
    "env.NCCL_SOCKET_IFNAME": "eth0",
    "net.interfaces": {
        "lo": {"up": True, "kind": "loopback", "addresses": ["127.0.0.1"]},
        "enp1s0": {"up": True, "kind": "ethernet", "addresses": ["10.0.0.7"]},
    },
}
HEALTHY = BROKEN | {"env.NCCL_SOCKET_IFNAME": "enp"}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if environment_variables.environment_unknown(facts):
        return None
    requested = network_interfaces.requested_interfaces(facts)
    if not requested:
        return None
    table = facts.value("net.interfaces") or {}
    wrong = [
        name for name, text in requested.items() if network_interfaces.allowed_interfaces(name, text, table) is None
    ]
    if not wrong:
        return None
    settings = [f"{name}={requested[name]}" for name in wrong]
    return make_finding(
        f"no interface of this machine matches {visible_gpus.join_names(settings)}; it has {network_interfaces.describe_interfaces(table)}",
        found=(*(facts.fact(f"env.{name}") for name in wrong), facts.fact("net.interfaces")),
        needs=tuple(
            Requirement(
                f"env.{name}", network_interfaces.describe_interfaces(table), cite=network_interfaces.CITE[name]
            )
            for name in wrong
        ),
        so="the processes of a job cannot connect to each other",
        fix=tuple(_interface_name_steps(wrong, network_interfaces.best_interface(table))),
        severity=SEVERITY if job_topology.has_parallel_processes(facts) else "warning",
    )


def _interface_name_steps(wrong: list[str], best: str | None) -> list[FixStep]:
    named = [FixStep(f"set {name}={best}") for name in wrong] if best else []
    return [*named, FixStep(f"unset {' '.join(wrong)} so that the library chooses")]
