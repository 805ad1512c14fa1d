"""The master port is taken.

The first rank, or the launcher, listens on the master port (29500 unless told otherwise), and every other rank connects to
it. Another process holds that port: a run that was left over, a second job on the same node, or the launcher itself, started
once for every rank by srun. The group is never made, and every other rank waits for the store until its time is up.

End what was left over, give each job a port of its own, and start one launcher per node. A rank that cannot connect is another
matter: nobody listens there.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "NET018"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    "The server socket has failed to bind to {}:{port} (errno: 98 - Address already in use)",
    "The server socket has failed to listen on any local network address. port: {port}, {} name: EADDRINUSE",
    "The server socket has failed to listen on any local network address. The server socket has failed to bind",
    "Tried to launch distributed communication on port `{port}`, but another process is utilizing it",
    {"says": "(errno: 98 - Address already in use)"},
    {"says": "name: EADDRINUSE"},
    {"says": "[Errno 98] Address already in use", "in": "exception"},
    {"says": "[Errno 98] error while attempting to bind on address", "as": "root"},
    {"says": "RuntimeError: Address already in use"},
    {"says": "ress already in use", "in": "exception"},
    {"says": "NCCL WARN Call to bind failed : Address already in use"},
    {"says": "NCCL WARN {}bind{}Address already in use"},
    {"says": "Port {port} is already in use", "in": "exception"},
    {"says": "port {port} is already in use", "in": "exception"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
