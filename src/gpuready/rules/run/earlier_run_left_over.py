"""The rest of an earlier run is in the way.

Ranks whose launcher was killed live on, hold their port and their GPU memory, and wait for peers that never come. A file store
(``file://``) that an earlier run left makes the next one wait, or join numbers that mean nothing any more. torchrun remembers a run by its
``--rdzv-id``: where the rendezvous of that name was closed, nobody can join it again.

End the ranks that are left (``gpuready run --reap`` names and ends them), remove the file, and give the new run another ``--rdzv-id``.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "RUN023"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    {"says": "the file store {path} was left over by an earlier run"},
    {"says": "the rendezvous {run} was closed {age} ago, in {path}"},
    {"says": "the run {run} is not the first of this name in its store"},
    {"says": "ranks of an earlier job live on without their launcher", "as": "clue"},
    {"says": "RendezvousClosedError", "as": "clue", "cause": "rendezvous-closed"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
