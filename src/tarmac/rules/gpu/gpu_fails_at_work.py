"""The GPU fails while it works.

(The story: what it means, why it happens, what to do, and what is no case of it.)
"""

from __future__ import annotations

from tarmac.rules import told

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tarmac.model import Contract, Facts, Finding

CODE = "GPU018"
SEVERITY = "error"
READS = told.READS
SIGNS = (
    {
        "says": "derived: the GPU of rank {rank} does not complete what its peers have completed in {group}",
        "in": "derived",
        "as": "clue",
    },
)
BROKEN, HEALTHY = told.examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return told.finding(facts, contract, CODE, SEVERITY)
