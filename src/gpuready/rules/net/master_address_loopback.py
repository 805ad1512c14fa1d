"""The job spans several machines, and MASTER_ADDR is a loopback address.

## What it checks
Whether MASTER_ADDR is localhost or 127.x while the variables indicate several machines: WORLD_SIZE larger
than LOCAL_WORLD_SIZE or, for ROLL, which counts nodes, larger than 1. On one machine loopback is right.

## Why it matters
Each machine looks for rank 0 on itself. All ranks wait until a timeout.

## How to fix
Set MASTER_ADDR on every machine to the name or address of the first machine, as the others see it.

## References
- torch.distributed, environment variable initialization
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import environment_variables, job_topology

CODE = "NET008"
SEVERITY = "error"
READS = ("env.*",)
REQUIRED_FACTS = job_topology.RANK_FACTS
BROKEN = {
    "env.names": ("MASTER_ADDR", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    "env.MASTER_ADDR": "127.0.0.1",
    "env.WORLD_SIZE": "16",
    "env.LOCAL_WORLD_SIZE": "8",
}
HEALTHY = BROKEN | {"env.MASTER_ADDR": "gpu-01"}
LOOPBACK_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost", "::1", "0.0.0.0", "::")


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if environment_variables.environment_unknown(facts):
        return None
    address = environment_variables.read_variable(facts, "MASTER_ADDR")
    if address is None or not is_loopback_address(address) or not job_topology.has_remote_ranks(facts, contract):
        return None
    sizes = [n for n in ("WORLD_SIZE", "LOCAL_WORLD_SIZE") if environment_variables.read_variable(facts, n)]
    return make_finding(
        f"the variable MASTER_ADDR is {address}, a loopback address, but the job spans several machines",
        found=tuple(facts.fact(f"env.{name}") for name in ("MASTER_ADDR", *sizes)),
        needs=(
            Requirement(
                "env.MASTER_ADDR", "the first machine", cite="torch.distributed, environment variable initialization"
            ),
        ),
        so="each machine looks for rank 0 on itself and waits until the timeout",
        fix=(FixStep("set MASTER_ADDR on every machine to the first machine's address, as the others see it"),),
    )


def is_loopback_address(address: str) -> bool:
    """Return whether an address refers to the machine that reads it."""
    host = address.strip("[]").lower()
    return host in LOOPBACK_NAMES or (host.startswith("127.") and host.replace(".", "").isdecimal())
