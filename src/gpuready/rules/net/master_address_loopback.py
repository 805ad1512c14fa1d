"""The job spans several machines, and its meeting point is this machine's own loopback.

MASTER_ADDR tells every rank where rank 0 listens. An address such as localhost or 127.0.0.1 means the
machine that reads it, so the ranks of other machines look for rank 0 at home, where it is not: they wait
until the time is out, and rank 0 waits for them. The variables say that there are others: WORLD_SIZE is
larger than LOCAL_WORLD_SIZE, or, for ROLL, which counts nodes, larger than 1.

Set MASTER_ADDR, on every machine, to the name or address of the first machine as the others know it. On one
machine loopback is right, and nothing is said.
"""

from __future__ import annotations

from gpuready.model import Finding, Need, Step
from gpuready.rules import nodes, shell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts

CODE = "NET008"
SEVERITY = "error"
READS = ("env.*",)
SIGNS = ()
BROKEN = {
    "env.names": ("MASTER_ADDR", "WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    "env.MASTER_ADDR": "127.0.0.1",
    "env.WORLD_SIZE": "16",
    "env.LOCAL_WORLD_SIZE": "8",
}
HEALTHY = BROKEN | {"env.MASTER_ADDR": "gpu-01"}
NAMES = ("localhost", "localhost.localdomain", "ip6-localhost", "::1", "0.0.0.0", "::")


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if shell.unseen(facts):
        return None
    address = shell.value(facts, "MASTER_ADDR")
    if address is None or not loopback(address) or not nodes.spread(facts, contract):
        return None
    sizes = [n for n in ("WORLD_SIZE", "LOCAL_WORLD_SIZE") if shell.value(facts, n)]
    return Finding(
        CODE,
        SEVERITY,
        f"the job spans several machines, and MASTER_ADDR is {address}, which is each machine itself",
        found=tuple(facts.fact(f"env.{name}") for name in ("MASTER_ADDR", *sizes)),
        needs=(
            Need(
                "env.MASTER_ADDR",
                "the first machine",
                cite="torch.distributed, environment variable initialization",
            ),
        ),
        so="the ranks of other machines look for rank 0 at home and wait until the time is out",
        fix=(Step("set MASTER_ADDR on every machine to the address of the first, as the others know it"),),
    )


def loopback(address: str) -> bool:
    """Return whether an address refers to the machine that reads it."""
    bare = address.strip("[]").lower()
    return bare in NAMES or (bare.startswith("127.") and bare.replace(".", "").isdecimal())
