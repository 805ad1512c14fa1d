"""The other ranks waited too long for one that was busy.

One rank, mostly the first, does something long alone: it tokenises the data, builds an index, converts weights or saves a
checkpoint, while the others wait for it in a barrier or for a key of the store. After ten or thirty minutes their patience ends, and
they take the run down although nothing is broken.

Prepare the data in a run of its own before training, or raise the time-out of the group (ddp_timeout, timeout= of
init_process_group). Ranks that wait in different collectives are RUN001; a network that stalls shows the same time-out without any work
going on.
"""

from __future__ import annotations

from gpuready.rules import log_findings
from gpuready.rules.log_phrases import DATA_PREPARATION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "RUN016"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    {
        "says": "derived: {count} ranks wait for rank {rank}, which waits for nobody, in {group}",
        "in": "derived",
        "as": "clue",
    },
    {
        "says": "is setting up NCCL communicator and retrieving ncclUniqueId from [0] via c10d key-value store by key",
        "as": "clue",
        "with": ("imeout", "timed out"),
        "unless": ("Connection reset by peer", "Broken pipe"),
    },
    {"says": "waitForInput: socket {}timed out after {after}ms", "as": "clue"},
    {"says": "waitForInput: poll for socket {} timed out", "as": "clue"},
    {"says": "failed to pass monitoredBarrier in", "as": "clue"},
    {"says": "Ranks {ranks} failed to pass monitoredBarrier", "as": "clue"},
    {
        "says": "Watchdog caught collective operation timeout: WorkNCCL(SeqNum={seq},",
        "when": "seq <= 4",
        "as": "clue",
        "also": DATA_PREPARATION,
    },
    {"says": "Watchdog caught collective operation timeout: WorkNCCL(OpType=", "as": "clue", "also": DATA_PREPARATION},
    {"says": "Timed out waiting {after}ms for recv operation to complete", "as": "clue", "also": DATA_PREPARATION},
    {"says": "Timed out waiting {after}ms for send operation to complete", "as": "clue", "also": DATA_PREPARATION},
    {"says": "Socket Timeout", "in": "exception", "as": "clue", "also": DATA_PREPARATION},
    {"says": "wait timeout after {after}ms, keys:", "as": "clue", "also": DATA_PREPARATION},
    {"says": "main_process_first(", "also": DATA_PREPARATION, "as": "clue"},
    {"says": "in main_process_first", "also": DATA_PREPARATION, "as": "clue"},
    {"says": "local_main_process_first", "also": DATA_PREPARATION, "as": "clue"},
    {"says": "Socket Timeout", "also": DATA_PREPARATION, "as": "clue"},
    {"says": 'with training_args.main_process_first(desc="dataset map pre-processing")', "as": "clue"},
    {"says": 'with training_args.main_process_first(desc="', "as": "clue"},
    {"says": "wait_for_everyone()", "also": DATA_PREPARATION, "as": "clue"},
    {"says": "timed out in a barrier", "also": DATA_PREPARATION, "as": "clue"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
