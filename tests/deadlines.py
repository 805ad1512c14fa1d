"""How long a test may take: never seconds of the clock, but a share of what a hang would take.

The stand-ins for a hang sleep ``HANG_S``. What ended at its deadline took a small part of that on the slowest
machine; ``make faults`` holds deadlines to half a second on a machine where nothing else runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable

HANG_S = 60.0

GENEROUS_S = 60.0
"""The deadline of what must go well, and how long a state is waited for: it costs nothing where it is reached early."""

AFTER_S = 2.0
"""The deadline of what does something first and then hangs: the first part takes milliseconds, and a share of this on a slow machine."""


def wait_until(is_true: Callable[[], object], seconds: float = GENEROUS_S) -> bool:
    """Wait for a state; return whether it came."""
    until = time.monotonic() + seconds
    while not is_true():
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


def fastest(call: Callable[[], object], rounds: int = 3, clock: Callable[[], float] = time.perf_counter) -> float:
    """Return the shortest of several runs in seconds, for tests of a ratio; ``time.process_time`` leaves out other processes."""
    taken = []
    for _ in range(rounds):
        begun = clock()
        call()
        taken.append(clock() - begun)
    return min(taken)
