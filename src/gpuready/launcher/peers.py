"""Which nodes have joined: the connections to rank 0's port in the kernel's table."""

from __future__ import annotations

import socket
from collections.abc import Sequence

from gpuready.model.run import LaunchJob
from gpuready.rollcall import endpoint

_ESTABLISHED = "01"


def connected_hosts(port: int, tables: Sequence[str] = ("/proc/net/tcp", "/proc/net/tcp6")) -> list[str]:
    """Return the addresses of other hosts that are connected to a local port."""
    rows = [row for row in endpoint.read_socket_table(port, tables) if row[3] == _ESTABLISHED]
    addresses = {_decode_kernel_address(row[2].rpartition(":")[0]) for row in rows}
    return sorted(a for a in addresses if not endpoint.is_loopback_address(a) and not endpoint.is_local_address(a))


def _decode_kernel_address(digits: str) -> str:
    """Decode an address of /proc/net/tcp: 32-bit words in the machine's byte order."""
    words = [bytes.fromhex(digits[i : i + 8])[::-1] for i in range(0, len(digits), 8)]
    raw = b"".join(words)
    if len(raw) == 16 and raw[:12] == bytes(10) + b"\xff\xff":
        raw = raw[12:]
    return socket.inet_ntop(socket.AF_INET if len(raw) == 4 else socket.AF_INET6, raw)


def explain_missing_nodes(job: LaunchJob) -> tuple[str, str]:
    """Explain what torchrun waits for when no rank of this node has started, and the fix."""
    endpoint_text = f"{job.master}:{job.port}"
    if job.node_rank:
        reached = endpoint.test_reachability(job.master, job.port, 1.5)
        if reached.ok:
            says = f"node 0 answers on {endpoint_text}, and waits for other nodes with this one (node {job.node_rank})"
            return says, "look at node 0: it names who came"
        says = f"node 0 does not answer on {endpoint_text}: {reached.why} {reached.detail}".rstrip()
        return says, "start node 0, or open the port between the nodes"
    connected, others = connected_hosts(job.port), job.nnodes - 1
    who_came = f"; {', '.join(connected)} came" if connected else "; none of the others came"
    who = "node 1 is" if others == 1 else f"{others - len(connected)} of the nodes 1 to {others} are"
    fix = f"start gpuready run --nnodes {job.nnodes} --node-rank R --master {endpoint_text} there, and open port {job.port} between the nodes"
    return f"{who} missing at {endpoint_text}{who_came}", fix
