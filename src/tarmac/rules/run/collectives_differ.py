"""The ranks run different collectives.

A collective ends when every rank of the group has come to it. Where one rank takes another way through the program (a collective
under ``if rank == 0``, batches that are not equal in number, experts that no token reached), each side waits for the other,
until the watchdog ends the run half an hour later. The watchdogs then name collectives that differ in number, kind or size.

Let every rank run the same collectives in the same order. A group in which all ranks wait in the same collective is no case of
this: there the network or a GPU stalls, or one rank is busy elsewhere.
"""

from __future__ import annotations

from tarmac.rules import told

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tarmac.model import Contract, Facts, Finding

CODE = "RUN001"
SEVERITY = "error"
READS = told.READS
SIGNS = (
    {"says": "derived: ranks wait in different collectives: rank {rank} in {op},", "in": "derived"},
    "Detected mismatch between collectives on ranks",
    "Collective types mismatch between rank",
    "Some ranks may have called different collectives",
)
BROKEN, HEALTHY = told.examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return told.finding(facts, contract, CODE, SEVERITY)
