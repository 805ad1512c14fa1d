"""Python is of a version that the framework does not support.

## What it checks
The version of Python against the range in the framework's requirements.

## Why it matters
An older Python cannot run the framework's code. For a newer one, torch or another package may have no wheels
yet; the installer then chooses an older release or a source build that fails.

## How to fix
Create an environment with a supported Python and install there. A Python is not upgraded in place; the
present environment stays as it is.

## References
- The framework's requirements, with their citations in the finding
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import contract_needs

CODE = "PKG004"
SEVERITY = "error"
READS = ("python.path", *contract_needs.READS)
CONTRACT = {"needs": ({"key": "python.version", "want": ">=3.9,<3.14", "cite": "setup.py:136"},)}
BROKEN = {"python.version": "3.8.19"}
HEALTHY = {"python.version": "3.12.3"}
PROPOSED_PYTHONS = ("3.12", "3.11", "3.13", "3.10", "3.14", "3.9", "3.8")
"""Pythons to propose, the one with the most wheels first."""


def judge(facts: Facts, contract: Contract) -> Finding | None:
    stated = contract.requirements_for("python.version")
    if not stated:
        return None
    failed = [
        n for n in contract_needs.unmet_needs(facts, stated) if facts.value_if_known("python.version") is not None
    ]
    if not failed:
        return None
    return make_finding(
        f"{contract.framework} does not support this Python",
        found=(facts.fact("python.version"), facts.fact("python.path")),
        needs=tuple(failed),
        so=f"this version of {contract.framework} cannot be installed here",
        fix=(_other_python_step(facts, failed),),
        severity=contract_needs.worst_need_severity(failed),
    )


def _other_python_step(facts: Facts, failed: list[Requirement]) -> FixStep:
    fit = [
        python
        for python in PROPOSED_PYTHONS
        if all(contract_needs.value_meets_need(facts, need, python) for need in failed)
    ]
    if not fit:
        return FixStep("create an environment with a supported Python")
    run = ("uv", "venv", "--python", fit[0], f"venv-{fit[0]}")
    return FixStep(f"create an environment with Python {fit[0]}", run, "ask", note="the present environment stays")
