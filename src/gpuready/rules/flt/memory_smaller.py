"""A node has less memory, or a smaller /dev/shm, than others of its kind.

## What it checks
Main memory and /dev/shm of each node against its kind, with a tolerance.

## Why it matters
Data loaders and NCCL pass data through /dev/shm and fail with ``Bus error`` on that node alone. With less
memory the kernel kills the ranks of that node first. Causes: a memory module that is no longer detected, or a
container with Docker's default of 64 MiB.

## How to fix
Start the container with ``--shm-size`` or ``--ipc=host`` as on the other nodes; have a missing module
replaced.

## References
- gpuready guide: fleet (docs/how-to/fleet.md)
- NCCL user guide, Troubleshooting: Runtime and MPI issues
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import fleet_findings

CODE = "FLT010"
SEVERITY = "error"
READS = ("fleet.memory",)
REQUIRED_FACTS = ("fleet.memory",)
BROKEN = {
    "fleet.memory": (
        {"what": "/dev/shm", "nodes": "n0998", "count": 1, "size": 64 << 20, "usual": 1 << 40, "peers": "all"},
    )
}
HEALTHY = {"fleet.memory": ()}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    rows = fleet_findings.fleet_rows(facts, "fleet.memory")
    if not rows:
        return None
    row = min(rows, key=lambda one: one["size"] / max(one["usual"], 1))
    count = sum(one["count"] for one in rows if one["what"] == row["what"])
    sizes = f"{_format_memory_size(row['size'])} instead of {_format_memory_size(row['usual'])}"
    return make_finding(
        f"{fleet_findings.format_count(count)} {'has' if count == 1 else 'have'} less {row['what']}: {sizes}: {fleet_findings.shorten_node_set(row['nodes'])}",
        found=(facts.fact("fleet.memory"),),
        needs=(Requirement("fleet.memory", "none", cite=fleet_findings.CITE),),
        so="jobs fail on this node only: with Bus error, or killed for memory",
        fix=(
            FixStep("start containers there with the --shm-size of the others, or --ipc=host"),
            FixStep("look for missing memory modules: dmidecode -t memory", note="needs root"),
        ),
    )


def _format_memory_size(count: int) -> str:
    return f"{count / (1 << 30):.0f} GiB" if count >= 10 << 30 else f"{count >> 20:,} MiB"
