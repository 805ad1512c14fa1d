"""How long a test may take: never seconds of the clock, but a share of what a hang would take.

The stand-ins for a hang sleep ``HANG_S``. What ended at its deadline took a small part of that on the slowest
machine; ``make faults`` holds deadlines to half a second on a machine where nothing else runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable

HANG_S = 60.0


def fastest(call: Callable[[], object], rounds: int = 3) -> float:
    """Return the shortest of several runs in seconds, for tests of a ratio."""
    taken = []
    for _ in range(rounds):
        begun = time.perf_counter()
        call()
        taken.append(time.perf_counter() - begun)
    return min(taken)
