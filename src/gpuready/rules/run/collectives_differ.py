"""The ranks run different collectives.

A collective ends when every rank of the group has come to it. Where one rank takes another way through the program (a collective
under ``if rank == 0``, batches that are not equal in number, experts that no token reached), each side waits for the other,
until the watchdog ends the run half an hour later. The watchdogs then name collectives that differ in number, kind or size.

Let every rank run the same collectives in the same order. A group in which all ranks wait in the same collective is no case of
this: there the network or a GPU stalls, or one rank is busy elsewhere.
"""

from __future__ import annotations

from gpuready.rules import log_findings
from gpuready.rules.log_phrases import DATA_PREPARATION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "RUN001"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    {"says": "derived: ranks wait in different collectives: rank {rank} in {op},", "in": "derived"},
    {
        "says": "Detected mismatch between collectives on ranks. Rank {rank} is running collective: {}OpType={op}, TensorShape={shape}, TensorDtypes={}but Rank {peer} is running collective: {}OpType={its}, TensorShape={size}, TensorDtypes="
    },
    "Detected mismatch between collectives on ranks",
    "Collective types mismatch between rank",
    "Some ranks may have called different collectives",
    "Collectives differ in the following aspects",
    "DDP expects same model across all ranks",
    {"says": "appears not to match sizes of the same param in process"},
    {"says": "op.preamble.length <= op.nbytes. {sent} vs {taken}."},
    {"says": "op.preamble.length <= op.nbytes"},
    {"says": "received data size doesn't match expected size"},
    {"says": "Forward order differs across ranks"},
    {"says": "disagreement between rank0 and rank"},
    {"says": "Mismatched collective", "as": "root"},
    {"says": "lagging/dead/mismatched ranks that caused the desync are", "as": "clue"},
    {"says": "didn't join collective #", "as": "clue"},
    {"says": "Timed out waiting {after}ms for recv operation to complete", "as": "clue", "unless": DATA_PREPARATION},
    {"says": "Timed out waiting {after}ms for send operation to complete", "as": "clue", "unless": DATA_PREPARATION},
    {"says": "Detected that not all ranks have the same number of batches", "as": "root"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
