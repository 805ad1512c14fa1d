"""A node has less memory, or a smaller /dev/shm, than its equals.

A memory module that is not seen any more, or a container that was started with the usual 64 MiB of /dev/shm instead of
what the others have. Data loaders and NCCL pass data through /dev/shm and die with ``Bus error`` on that node alone;
with less memory the kernel kills the ranks of that node first.

It is an error. Sizes are compared with a tolerance, since equal machines keep a little back for themselves. Start the
container with ``--shm-size`` or ``--ipc=host`` as on the other nodes; have a missing module replaced.
"""

from __future__ import annotations

from gpuready.model import Finding, Need, Step
from gpuready.rules import fleetwide

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts

CODE = "FLT010"
SEVERITY = "error"
READS = ("fleet.memory",)
SIGNS = ()
BROKEN = {
    "fleet.memory": (
        {
            "what": "/dev/shm",
            "nodes": "n0998",
            "count": 1,
            "size": 64 << 20,
            "usual": 1 << 40,
            "stratum": "all",
        },
    )
}
HEALTHY = {"fleet.memory": ()}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    found = fleetwide.rows(facts, "fleet.memory")
    if not found:
        return None
    row = min(found, key=lambda one: one["size"] / max(one["usual"], 1))
    count = sum(one["count"] for one in found if one["what"] == row["what"])
    sizes = f"{_size(row['size'])} instead of {_size(row['usual'])}"
    return Finding(
        CODE,
        SEVERITY,
        f"{fleetwide.plural(count)} {'has' if count == 1 else 'have'} less {row['what']}: {sizes}: {fleetwide.nodes(row['nodes'])}",
        found=(facts.fact("fleet.memory"),),
        needs=(Need("fleet.memory", "none", cite=fleetwide.CITE),),
        so="jobs die on this node alone: with a bus error, or killed for memory",
        fix=(
            Step("start containers there with the --shm-size of the others, or --ipc=host"),
            Step("look for missing memory modules: dmidecode -t memory", note="needs root"),
        ),
    )


def _size(count: int) -> str:
    return f"{count / (1 << 30):.0f} GiB" if count >= 10 << 30 else f"{count >> 20:,} MiB"
