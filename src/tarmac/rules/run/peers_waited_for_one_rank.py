"""The other ranks waited too long for one that was busy.

(The story: what it means, why it happens, what to do, and what is no case of it.)
"""

from __future__ import annotations

from tarmac.rules import told

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tarmac.model import Contract, Facts, Finding

CODE = "RUN016"
SEVERITY = "error"
READS = told.READS
SIGNS = (
    {
        "says": "derived: {count} ranks wait for rank {rank}, which waits for nobody, in {group}",
        "in": "derived",
        "as": "clue",
    },
)
BROKEN, HEALTHY = told.examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return told.finding(facts, contract, CODE, SEVERITY)
