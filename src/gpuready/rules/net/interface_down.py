"""The network interface that the job would use is down or has no address.

An interface counts for NCCL when it is up, its link is there and it has an IP address. NCCL_SOCKET_IFNAME
or GLOO_SOCKET_IFNAME may name one that is here but does not: a port without a cable, an InfiniBand
interface (ib0) on which nobody has set up IP, a bridge without members. NCCL then finds no interface and
stops. A job on several machines also fails where no interface at all leads out.

It is an error for a job with several processes, else a warning. ``ip -br address`` shows what there is.
Bring the interface up and give it an address, or name another one.
"""

from __future__ import annotations

from gpuready.model import Finding, Need, Step
from gpuready.rules import cards, interfaces, nodes, shell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts

CODE = "NET002"
SEVERITY = "error"
READS = (*interfaces.READS, "net.interface", *nodes.READS)
SIGNS = ()
BROKEN = {
    "job.wants": ("multi-node",),
    "env.names": ("NCCL_SOCKET_IFNAME",),
    "env.NCCL_SOCKET_IFNAME": "ib0",
    "net.interfaces": {
        "ib0": {"up": False, "kind": "infiniband", "addresses": []},
        "eth0": {"up": True, "kind": "ethernet", "addresses": ["10.0.0.7"]},
    },
}
HEALTHY = BROKEN | {
    "net.interfaces": {"ib0": {"up": True, "kind": "infiniband", "addresses": ["10.1.0.7"]}},
}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    if shell.unseen(facts):
        return None
    asked = interfaces.asked(facts)
    if not asked:
        return _nowhere(facts, contract)
    table = facts.value("net.interfaces") or {}
    dead = {name: _dead(name, text, table) for name, text in asked.items()}
    wrong = {name: found for name, found in dead.items() if found}
    if not wrong:
        return None
    which = list(dict.fromkeys(i for found in wrong.values() for i in found))
    best = interfaces.best(table)
    return Finding(
        CODE,
        SEVERITY if nodes.parallel(facts) else "warning",
        f"all that {cards.listed(list(wrong))} allows is down or has no address: {cards.listed(which)}",
        found=(*(facts.fact(f"env.{name}") for name in wrong), facts.fact("net.interfaces")),
        needs=tuple(
            Need("net.interfaces", "up, with an address", cite=interfaces.CITE[name]) for name in wrong
        ),
        so="the processes of a job find no way to each other and stop when they connect",
        fix=(
            *([Step(f"set {' and '.join(wrong)} to {best}")] if best else []),
            Step(f"bring {which[0]} up and give it an address", note="needs root"),
        ),
    )


def _dead(variable: str, text: str, table: interfaces.Table) -> list[str]:
    """Return the allowed interfaces if none of them works; NET001 reports missing ones."""
    allowed = interfaces.named(variable, text, table) or []
    working = [name for name in allowed if interfaces.ready(table[name])]
    if variable == "GLOO_SOCKET_IFNAME":
        return [name for name in allowed if name not in working]
    return [] if working else allowed


def _nowhere(facts: Facts, contract: Contract) -> Finding | None:
    """Return a finding if a multi-node job runs where NCCL sees no interface."""
    if "net.interface" not in facts or not nodes.several(facts, contract):
        return None
    if facts.value("net.interface") is not None:
        return None
    return Finding(
        CODE,
        SEVERITY,
        "no network interface of this machine is up and has an address",
        found=(facts.fact("net.interface"), facts.fact("net.interfaces")),
        needs=(Need("net.interface", "*", cite=interfaces.CITE["NCCL_SOCKET_IFNAME"]),),
        so="no other machine can be reached, and the job stops when it connects",
        fix=(Step("bring an interface up and give it an address", note="needs root"),),
    )
