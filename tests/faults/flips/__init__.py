"""For each rule one fault that flips it: at the door of a machine that is well, or where only another command looks."""

from __future__ import annotations

from gpuready import rules
from tests.faults.flips import build, driver, gpu, job, network, package, surroundings
from tests.faults.flips.elsewhere import ELSEWHERE
from tests.faults.flips.machine import BreakableMachine, Fault

__all__ = ["ELSEWHERE", "FAULTS", "BreakableMachine"]


def _derive_faults() -> dict[str, Fault]:
    """The fault of each rule whose broken example is a variable and nothing else: that variable, set."""
    found: dict[str, Fault] = {}
    for code in rules.list_codes():
        broken = rules.load_rule(code).BROKEN
        if broken and all(key.startswith("env.") for key in broken):
            variables = {key[4:]: str(value) for key, value in broken.items() if key != "env.names"}
            found[code] = lambda p, variables=variables: p.set(**variables)
    return found


FAULTS: dict[str, Fault] = {
    **_derive_faults(),
    **gpu.FAULTS,
    **driver.FAULTS,
    **build.FAULTS,
    **package.FAULTS,
    **surroundings.FAULTS,
    **network.FAULTS,
    **job.FAULTS,
}
"""By the code of the rule."""
