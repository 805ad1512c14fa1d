"""The nodes cannot connect to each other.

The ranks have met at the master, and then cannot reach each other: NCCL and gloo open connections of their own, to other ports
and sometimes over another network than the rendezvous used. A firewall between the nodes, a route that is missing, a port that is down, a
host name that every node resolves to its own loopback address.

Open all ports between the nodes, choose the network that they share (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME), repair /etc/hosts, or
leave the node out. A connection that was closed after it had worked is only what follows when a peer dies.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "NET017"
SEVERITY = "error"
READS = log_findings.READS
LOCAL_ADDRESSES = ("onnect to fe80:", "onnect to 172.17.0.1<", "onnect to 127.0.")
"""Addresses that no other node has: the interface or the host name is then wrong."""
PATTERNS = (
    {
        "says": "NCCL WARN Net : Connect to {peer} failed : {why}",
        "with": ("No route to", "Connection timed out", "Network is unreachable", "Host is unreachable"),
        "without": LOCAL_ADDRESSES,
    },
    {"says": "Connect to {peer} failed : No route to host", "without": LOCAL_ADDRESSES},
    {"says": "Connect to {peer} failed : Connection timed out", "without": LOCAL_ADDRESSES},
    {"says": "Connect to {peer} failed : Network is unreachable", "without": LOCAL_ADDRESSES},
    {"says": "Connect to {peer} failed : Host is unreachable", "without": LOCAL_ADDRESSES},
    {"says": "socketPollConnect: Connect to {peer} returned {}No route to host", "without": LOCAL_ADDRESSES},
    {"says": "socketPollConnect: connect to {peer} returned {}No route to host", "without": LOCAL_ADDRESSES},
    {"says": "socketPollConnect: {}onnect to {peer} returned {}onnection timed out", "without": LOCAL_ADDRESSES},
    {"says": "socketPollConnect: {}onnect to {peer} returned {}etwork is unreachable", "without": LOCAL_ADDRESSES},
    {"says": "socketPollConnect {}exceeded", "without": LOCAL_ADDRESSES},
    {"says": "socketStartConnect: exceeded", "without": LOCAL_ADDRESSES},
    {"says": "Call to connect returned No route to host"},
    {"says": "Call to connect returned Connection timed out"},
    {"says": "Call to connect returned {why}, retrying", "as": "clue"},
    {"says": "Connect to {peer} failed : Connection refused", "as": "clue", "without": LOCAL_ADDRESSES},
    {"says": "Connect to {peer} failed : Software caused connection abort", "as": "clue", "without": LOCAL_ADDRESSES},
    {
        "says": "socketPollConnect: {}onnect to {peer} returned {}onnection refused",
        "as": "clue",
        "without": LOCAL_ADDRESSES,
    },
    "error=SO_ERROR: No route to host",
    "error=SO_ERROR: Connection timed out",
    "error=SO_ERROR: Network is unreachable",
    "SO_ERROR: No route to host",
    "timed out connecting: SO_ERROR",
    {"says": "gloo/transport/tcp{}No route to host"},
    {"says": "gloo/transport/tcp{}Network is unreachable"},
    {"says": "gloo/transport/tcp{}Connect timeout"},
    {"says": "gloo/transport/tcp{}connect: Connection timed out"},
    {"says": "gloo/transport/tcp{}onnection refused", "as": "clue"},
    {"says": "ssh: connect to host {host} port {}: No route to host"},
    {"says": "ssh: connect to host {host} port {}: Connection timed out"},
    {"says": "ssh: connect to host {host} port", "as": "clue"},
    {"says": "DUE TO NODE FAILURE"},
    {"says": "srun: error: Node failure on {host}"},
    {"says": "ncclSystemError: System call (e.g. socket, malloc) or external library call failed", "as": "clue"},
    {"says": "NETDEV WATCHDOG: {}transmit queue", "as": "clue"},
    "onnect returned No route to host",
    "onnect returned Connection timed out",
    "onnect returned Network is unreachable",
    "onnect returned Host is unreachable",
    {"says": "onnect returned Connection refused", "as": "clue"},
    {"says": "socketProgressOpt: Call to recv from {} failed : Connection timed out"},
    {"says": "socketProgressOpt: Call to recv from {} failed : No route to host"},
    {"says": "Call to recv from {} failed : Connection timed out", "as": "clue"},
    {"says": "ncclSocketConnect{}No route to host"},
    {"says": "ncclSocketConnect{}timed out"},
    {"says": "Call to connect to {} failed: No route to host"},
    {"says": "Call to connect to {} failed: Connection timed out"},
    {"says": "ssh: connect to host {host} port {}: Network is unreachable"},
    {"says": "ssh: connect to host {host} port {}: Connection refused"},
    {"says": "Host key verification failed.", "in": ""},
    {"says": "Permission denied (publickey"},
    {"says": "Connect timeout [", "with": ("gloo",)},
    {"says": "The node with node id: {} has been marked dead"},
    {"says": "marked dead because the detector has missed too many heartbeats", "as": "clue"},
    {"says": "slurmstepd: error: *** {} CANCELLED {} DUE TO NODE FAILURE"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
