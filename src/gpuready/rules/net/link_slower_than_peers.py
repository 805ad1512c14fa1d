"""One link between the nodes is much slower than the others.

Before the group is made, the first rank of each host sends a piece of data to its neighbours and gets it back. A link that takes many times as
long as those of the others sets the pace of every collective: a cable or port that fell back to a lower rate, traffic that goes over the
wrong interface, a limit that somebody set.

Compare the speeds of the ports (``ethtool``, ``ibstat``), choose the interface (NCCL_SOCKET_IFNAME, GLOO_SOCKET_IFNAME), or leave the
host out.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "NET019"
SEVERITY = "warning"
READS = log_findings.READS
PATTERNS = ({"says": "the link between {one} and {other} is slow: {rate} MB/s", "as": "clue"},)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
