"""Which nodes have joined: the connections to rank 0's port in the kernel's table."""

from __future__ import annotations

import socket

from gpuready.rollcall import endpoint

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuready.launcher.job import Job

_ESTABLISHED = "01"


def connected(port: int, tables: Iterable[str] = ("/proc/net/tcp", "/proc/net/tcp6")) -> list[str]:
    """Return the addresses of other hosts that are connected to a local port."""
    found: list[str] = []
    for path in tables:
        try:
            with open(path, encoding="ascii", errors="replace") as file:
                rows = [line.split() for line in file][1:]
        except OSError:
            continue
        for row in rows:
            if len(row) > 3 and row[3] == _ESTABLISHED and int(row[1].rpartition(":")[2], 16) == port:
                found.append(_address(row[2].rpartition(":")[0]))
    return sorted({a for a in found if not endpoint.is_loopback(a) and not endpoint.is_local(a)})


def _address(digits: str) -> str:
    """Decode an address of /proc/net/tcp: 32-bit words in the machine's byte order."""
    words = [bytes.fromhex(digits[i : i + 8])[::-1] for i in range(0, len(digits), 8)]
    raw = b"".join(words)
    if len(raw) == 16 and raw[:12] == bytes(10) + b"\xff\xff":
        raw = raw[12:]
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)


def missing(job: Job) -> tuple[str, str]:
    """Explain what torchrun waits for when no rank of this node has started, and the fix."""
    at = f"{job.master}:{job.port}"
    if job.node_rank:
        reached = endpoint.reach(job.master, job.port, 1.5)
        if reached.ok:
            return (
                f"node 0 answers on {at}, and waits for other nodes with this one (node {job.node_rank})",
                "look at node 0: it names who came",
            )
        return (
            f"node 0 does not answer on {at}: {reached.why} {reached.told}".rstrip(),
            "start node 0, or open the port between the nodes",
        )
    came = connected(job.port)
    told = f"; {', '.join(came)} came" if came else "; none of the others came"
    who = (
        "node 1 is"
        if job.nnodes == 2
        else f"{job.nnodes - 1 - len(came)} of the nodes 1 to {job.nnodes - 1} are"
    )
    fix = f"start gpuready run --nnodes {job.nnodes} --node-rank R --master {at} there, and open port {job.port} between the nodes"
    return f"{who} missing at {at}{told}", fix
