"""Memory of one GPU cannot be reached from another although the driver says so.

(The story: what it means, why it happens, what to do, and what is no case of it.)
"""

from __future__ import annotations

from tarmac.rules import told

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tarmac.model import Contract, Facts, Finding

CODE = "NET013"
SEVERITY = "error"
READS = told.READS
SIGNS = ()
BROKEN, HEALTHY = told.examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return told.finding(facts, contract, CODE, SEVERITY)
