"""For each rule one fault that flips it: at the door of a machine that is well, or where only another command looks."""

from __future__ import annotations

from tests.faults.flips import build, driver, gpu, job, network, package, surroundings
from tests.faults.flips.elsewhere import ELSEWHERE
from tests.faults.flips.machine import BreakableMachine, Fault

__all__ = ["ELSEWHERE", "FAULTS", "BreakableMachine"]

FAULTS: dict[str, Fault] = {
    **gpu.FAULTS,
    **driver.FAULTS,
    **build.FAULTS,
    **package.FAULTS,
    **surroundings.FAULTS,
    **network.FAULTS,
    **job.FAULTS,
}
"""By the code of the rule."""
