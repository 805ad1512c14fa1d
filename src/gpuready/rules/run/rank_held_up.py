"""A rank is held up.

It lives and does nothing: a signal or a debugger has stopped it (state T), a call into C holds the GIL and never comes back, or it waits in
the kernel for a disk or a device (state D). All others wait for it in their next collective, and after half an hour the watchdog blames
them. ``gpuready run`` sees it by the beats of its side process, and names the rank, its host and its state within 20 seconds.

Continue a stopped process with ``kill -CONT``; look at the stack that is shown for the call that does not return.
"""

from __future__ import annotations

from gpuready.rules import log_findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Finding

CODE = "RUN024"
SEVERITY = "error"
READS = log_findings.READS
PATTERNS = (
    {"says": "is stopped (state T, pid {pid}): a signal or a debugger holds it", "as": "clue"},
    {"says": "holds the GIL and {how} (pid {pid}): no Python has run in it", "as": "clue"},
    {"says": "has been waiting in the kernel for {} (state D", "as": "clue"},
)
BROKEN, HEALTHY = log_findings.log_examples(CODE)


def judge(facts: Facts, contract: Contract) -> Finding | None:
    return log_findings.log_finding(facts, contract, CODE, SEVERITY)
