"""Python is of a version that the framework does not take.

Too old a Python cannot read the framework's code; too new a one has no wheels of torch or of some other
package yet, and the installer then falls back to an older release or to a build from source that fails.

A Python is not upgraded in place: make an environment with another one and install there. The present one
stays as it is.
"""

from __future__ import annotations

from gpuready.model import Finding, FixStep
from gpuready.rules import contract_needs

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuready.model import Contract, Facts, Requirement

CODE = "PKG004"
SEVERITY = "error"
READS = ("python.path", *contract_needs.READS)
PATTERNS = (
    {"says": "require a different python version: "},
    {
        "says": "Could not find a version that satisfies the requirement {package} (from versions: {versions}",
        "without": (":\\", "(from versions: none)", "NewConnectionError", "SSLError", "ConnectTimeout"),
    },
    "requires a different Python: {have} not in '{want}'",
    "requires a different Python:",
    "requires a different python version",
    {"says": "because the current Python version ({have}) does not satisfy"},
    {"says": "Because the current Python version ({have}) does not satisfy"},
    {"says": "Because the requested Python version ({have}) does not satisfy"},
    {"says": "The requested interpreter resolved to Python {have}, which is incompatible"},
    {"says": "Dynamo is not supported on Python", "without": ("transformer_engine",)},
    {"says": "Dynamo not supported on Python", "without": ("transformer_engine",)},
    {"says": "torch.compile is not supported on Python", "without": ("transformer_engine",)},
    {"says": "Cannot install on Python version {have}; only versions {want} are supported"},
    {"says": "no wheels with a matching Python ABI tag"},
    {"says": "no wheels with a matching Python version tag"},
    {"says": "no wheels with a matching Python implementation tag"},
    {"says": "module 'pkgutil' has no attribute 'ImpImporter'"},
    {"says": "No module named 'distutils", "in": "exception"},
    {"says": "No module named 'imp'", "in": "exception"},
    {"says": "No module named 'tomllib'", "in": "exception"},
    {"says": "No module named 'asynchat'", "in": "exception"},
    {"says": "No module named 'graphlib'", "in": "exception"},
    {"says": "No module named 'zoneinfo'", "in": "exception"},
    {"says": "cannot import name '{name}' from 'typing' (", "in": "exception"},
    {"says": "cannot import name 'UTC' from 'datetime'", "in": "exception"},
    {"says": "cannot import name 'StrEnum' from 'enum'", "in": "exception"},
    {"says": "cannot import name '{name}' from 'collections' (", "in": "exception"},
    {"says": "module 'collections' has no attribute", "in": "exception"},
    {"says": "module 'inspect' has no attribute 'getargspec'", "in": "exception"},
    {"says": "module 'asyncio' has no attribute 'coroutine'", "in": "exception"},
    {"says": "dataclass() got an unexpected keyword argument", "in": "exception"},
    {
        "says": "mutable default {} for field {} is not allowed: use default_factory",
        "in": "exception",
        "with": ("-packages/",),
    },
    {"says": "unsupported operand type(s) for |: 'type' and", "in": "exception"},
    {"says": "unsupported operand type(s) for |: '_GenericAlias' and", "in": "exception"},
    {"says": "TypeError: 'type' object is not subscriptable", "in": "exception", "as": "clue"},
    {"says": "'ABCMeta' object is not subscriptable", "in": "exception"},
    {"says": "Python {} is not supported", "in": "exception"},
    {"says": "is not supported on Python 3.", "in": "exception"},
    {"says": "does not support Python 3.", "in": "exception"},
    {"says": "not compatible with Python 3.", "in": "exception"},
    {"says": "requires Python 3.", "in": "exception"},
    {"says": "requires Python >=", "as": "clue"},
    {"says": "Python version >=", "as": "clue"},
    {"says": "or later is required", "in": "exception", "as": "clue", "with": ("Python",)},
    {"says": "python{}is required for a normal functioning of this module, but found python==", "in": "exception"},
    {
        "says": "SyntaxError: invalid syntax",
        "in": "exception",
        "as": "clue",
        "with": ("-packages/", "match ", ":=", "except*"),
    },
    {"says": "bad magic number in", "in": "exception", "as": "clue"},
    {
        "says": "Could not find a version that satisfies the requirement {package} (from versions:",
        "as": "clue",
        "without": (":\\",),
    },
    {"says": "is not a supported wheel on this platform"},
    {"says": "No matching distribution found for", "as": "clue", "without": (":\\", "NewConnectionError", "SSLError")},
)
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
    return Finding(
        CODE,
        contract_needs.worst_need_severity(failed),
        f"this Python is not one that {contract.framework} takes",
        found=(facts.fact("python.version"), facts.fact("python.path")),
        needs=tuple(failed),
        so=f"{contract.framework} cannot be installed here, or not in this version",
        fix=(_other_python_step(facts, failed),),
    )


def _other_python_step(facts: Facts, failed: list[Requirement]) -> FixStep:
    fit = [
        python
        for python in PROPOSED_PYTHONS
        if all(contract_needs.value_meets_need(facts, need, python) for need in failed)
    ]
    if not fit:
        return FixStep("make an environment with a Python inside this range")
    run = ("uv", "venv", "--python", fit[0], f"venv-{fit[0]}")
    return FixStep(f"make an environment with Python {fit[0]}", run, "ask", note="the present one stays")
