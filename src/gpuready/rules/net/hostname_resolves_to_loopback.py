"""The host name of this machine resolves to a loopback address.

## What it checks
Whether the machine's own name resolves to 127.x, for a job on several machines. Nothing is reported if
GLOO_SOCKET_IFNAME is set. It is a warning.

## Why it matters
Gloo and Ray announce that address to the other nodes, and torchrun uses it to decide whether it hosts the
rendezvous. The job hangs in its first collective, or fails with ``Gloo connectFullMesh failed``. Debian and
Ubuntu write ``127.0.1.1 HOSTNAME`` into /etc/hosts.

## How to fix
Change the line in /etc/hosts to the address that the other machines use, or set GLOO_SOCKET_IFNAME.

## References
- torch, ProcessGroupGloo::createDefaultDevice
- hosts(5)
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import environment_variables, job_topology
from gpuready.rules.net.master_address_loopback import is_loopback_address

CODE = "NET009"
SEVERITY = "warning"
READS = ("net.hostname_address", *job_topology.READS)
REQUIRED_FACTS = ("job.wants", "env.NNODES", "env.SLURM_JOB_NUM_NODES", "env.SLURM_NNODES", "env.WORLD_SIZE")
BROKEN = {"job.wants": ("multi-node",), "net.hostname_address": "127.0.1.1", "env.names": ()}
HEALTHY = BROKEN | {"net.hostname_address": "10.0.0.7"}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if "net.hostname_address" not in facts or not job_topology.is_multi_node(facts, contract):
        return None
    address = facts.value("net.hostname_address")
    if address is None or not is_loopback_address(str(address)):
        return None
    if not environment_variables.environment_unknown(facts) and environment_variables.read_variable(
        facts, "GLOO_SOCKET_IFNAME"
    ):
        return None
    return make_finding(
        f"the host name resolves to {address}, which no other machine can reach",
        found=(facts.fact("net.hostname_address"),),
        needs=(
            Requirement(
                "net.hostname_address",
                "an address of an interface",
                level="recommended",
                cite="torch, ProcessGroupGloo::createDefaultDevice; hosts(5)",
            ),
        ),
        so="Gloo and Ray announce an address that other machines cannot reach, and the job hangs",
        fix=(
            FixStep("set the real address of the host name in /etc/hosts", note="needs root"),
            FixStep("set GLOO_SOCKET_IFNAME to the interface that the machines share"),
        ),
    )
