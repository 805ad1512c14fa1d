"""A collective never ends.

All ranks of a group wait in the same collective, and it never ends: nobody died, nobody took another way. Then something below
stalls: a link between two GPUs, a network port, a switch, the driver of one node. It is often one particular machine, and the same
job runs on another one. It can also be one rank that was held up before it joined, which only its own log or stack can tell.

Run nccl-tests on this node alone and on others, compare the topology (nvidia-smi topo -m) and the kernel's log, and keep the node out
if it fails. Collectives that differ between ranks are RUN001.
"""

from __future__ import annotations

from gpuready.rules import log_findings
from gpuready.rules.log_phrases import DATA_PREPARATION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "NET014"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    {
        "says": "Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={count},",
        "when": "seq > 4",
        "as": "clue",
        "unless": ("via P2P/", "exitcode: -9", "Signal 9 (SIGKILL)"),
    },
    {
        "says": "Watchdog caught collective operation timeout: WorkNCCL(OpType={op},",
        "as": "clue",
        "unless": ("via P2P/", "exitcode: -9", "Signal 9 (SIGKILL)", *DATA_PREPARATION),
    },
    {
        "says": "Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq}, OpType={op}, TensorShape=",
        "as": "clue",
        "unless": ("via P2P/", "exitcode: -9", "Signal 9 (SIGKILL)", *DATA_PREPARATION),
    },
    {
        "says": "Caught collective operation timeout: WorkNCCL(",
        "as": "clue",
        "unless": ("via P2P/", "exitcode: -9", "Signal 9 (SIGKILL)", *DATA_PREPARATION),
    },
    {
        "says": "ProcessGroupNCCL's watchdog got stuck for",
        "as": "clue",
        "unless": ("Watchdog caught collective operation timeout",),
    },
    {
        "says": "WorkNCCL({} timed out in blocking wait",
        "as": "clue",
        "unless": ("via P2P/", "exitcode: -9", "Signal 9 (SIGKILL)", *DATA_PREPARATION),
    },
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
