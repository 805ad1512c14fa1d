"""How long a test may take: never seconds of the clock, but a share of what a hang would take.

The stand-ins for a hang sleep ``HANG_S``. What ended at its deadline took a small part of that on the slowest
machine; ``make faults`` holds deadlines to half a second on a machine where nothing else runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable

HANG_S = 60.0


def fastest(call: Callable[[], object], rounds: int = 3, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the shortest of several runs in seconds, for tests of a ratio; ``time.process_time`` leaves out other processes."""
    taken = []
    for _ in range(rounds):
        begun = clock()
        call()
        taken.append(clock() - begun)
    return min(taken)
