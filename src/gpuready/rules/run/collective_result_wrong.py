"""A collective gives a wrong result.

The first sum over all ranks has a result that is known in advance, bit by bit. Where another one comes out, some device, some memory or some
link changes data without any error: a training on it would go on and learn from noise. A rank that sends NaN, and one whose bits flip, are
found in the same way. Each rank first shows the checksum of what it is about to send; then the ranks are tried in pairs, and the rank
whose pairs are wrong, while the pairs of others are right, is named.

In a training, ``World.check_finite(loss=loss)`` names the rank whose loss or gradient is NaN before it spreads to the others.

Take the host of that rank out, and test its device and memory (``gpuready prove``, ``dcgmi diag -r 3``, memtest). Where no single rank can be
named, it is a link or a switch between them.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "RUN022"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    {"says": "NaN or infinite: {what} of rank {rank} ({host})", "with": ("RUN022",)},
    {"says": "the first sum over {count} ranks is wrong: {what}"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
