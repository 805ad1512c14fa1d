"""The place where the ranks meet cannot be reached.

Every rank first connects to one place, MASTER_ADDR and MASTER_PORT or the endpoint of the rendezvous, where the first rank or its
launcher listens. Nobody answered there in time: the name does not resolve, the address is of a network that this node cannot reach,
a firewall closes the port, the first rank was not started yet or died before it listened, or fewer ranks came than were announced.

Resolve and reach the address from this node (getent hosts, nc -vz), open the port, start the first node first, and give every node
the same endpoint. Warnings about IPv6 addresses alone are no failure: torch tries IPv4 next.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "NET016"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    "The client socket has timed out after {after} while trying to connect to ({host}, {port})",
    "The client socket has failed to connect to any network address of ({host}, {port})",
    "The connection to the C10d store has failed",
    "The connection to the etcd has failed",
    {"says": "RendezvousConnectionError", "without": ("due to an error of type",)},
    {"says": "RendezvousTimeoutError", "without": ("due to an error of type",)},
    "seconds waiting for clients. {joined} clients joined",
    "connect() timed out. Original timeout was",
    "The rendezvous backend has failed. See inner exception",
    "Failed to connect to the store",
    "timed out waiting for the rendezvous",
    {
        "says": "Connection refused",
        "in": "exception",
        "with": ("TCPStore", "_create_c10d_store", "torch/distributed/rendezvous.py"),
    },
    {
        "says": "Connection timed out",
        "in": "exception",
        "with": ("TCPStore", "_create_c10d_store", "torch/distributed/rendezvous.py"),
    },
    {
        "says": "No route to host",
        "in": "exception",
        "with": ("TCPStore", "_create_c10d_store", "torch/distributed/rendezvous.py"),
    },
    {
        "says": "Name or service not known",
        "in": "exception",
        "with": ("TCPStore", "_create_c10d_store", "torch/distributed", "MASTER_ADDR"),
    },
    {
        "says": "Temporary failure in name resolution",
        "in": "exception",
        "with": ("TCPStore", "_create_c10d_store", "torch/distributed", "MASTER_ADDR"),
    },
    {"says": "The client socket has failed to connect to {}(errno: 111 - Connection refused)", "as": "clue"},
    {"says": "The client socket has failed to connect to {}(errno: 110 - Connection timed out)", "as": "clue"},
    {"says": "The client socket has failed to connect to {}(errno: 113 - No route to host)", "as": "clue"},
    {"says": "cannot be retrieved (gai error", "as": "clue"},
    {
        "says": "has failed to send a keep-alive heartbeat to the rendezvous {} error of type RendezvousTimeoutError",
        "as": "clue",
    },
    {"says": "Failed to connect to GCS", "as": "clue"},
    {"says": "Unable to connect to GCS", "as": "clue"},
    {"says": "Could not connect to the endpoint of the coordinator", "as": "clue"},
    {"says": "ssh: Could not resolve hostname", "as": "clue"},
    "while trying to connect to {host}:{port}",
    {"says": "RuntimeError: connect() timed out"},
    {"says": "Timed out initializing process group in store based barrier on rank: {rank}", "as": "clue"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
