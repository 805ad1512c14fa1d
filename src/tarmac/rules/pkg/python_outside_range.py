"""Python is of a version that the framework does not take.

Too old a Python cannot read the framework's code; too new a one has no wheels of torch or of some other
package yet, and the installer then falls back to an older release or to a build from source that fails.

A Python is not upgraded in place: make an environment with another one and install there. The present one
stays as it is.
"""

from __future__ import annotations

from tarmac.model import Finding, Step
from tarmac.rules import needs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from tarmac.model import Contract, Facts, Need

CODE = "PKG004"
SEVERITY = "error"
READS = ("python.path", *needs.READS)
SIGNS = ("requires a different Python:",)
CONTRACT = {"needs": ({"key": "python.version", "want": ">=3.9,<3.14", "cite": "setup.py:136"},)}
BROKEN = {"python.version": "3.8.19"}
HEALTHY = {"python.version": "3.12.3"}
OFFERED = ("3.12", "3.11", "3.13", "3.10", "3.14", "3.9", "3.8")
"""Pythons to propose: the one with the most wheels first."""


def judge(facts: Facts, contract: Contract) -> Finding | None:
    asked = contract.wants("python.version")
    if not asked:
        return None
    failed = [n for n in needs.unmet(facts, asked) if facts.known("python.version") is not None]
    if not failed:
        return None
    return Finding(
        CODE,
        needs.severity(failed),
        f"this Python is not one that {contract.framework} takes",
        found=(facts.fact("python.version"), facts.fact("python.path")),
        needs=tuple(failed),
        so=f"{contract.framework} cannot be installed here, or not in this version",
        fix=(_another(facts, failed),),
    )


def _another(facts: Facts, failed: list[Need]) -> Step:
    fit = [python for python in OFFERED if all(needs.holds(facts, need, python) for need in failed)]
    if not fit:
        return Step("make an environment with a Python inside this range")
    run = ("uv", "venv", "--python", fit[0], f"venv-{fit[0]}")
    return Step(f"make an environment with Python {fit[0]}", run, "ask", note="the present one stays")
