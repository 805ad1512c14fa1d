"""A file of the current folder hides an installed module.

Python looks first beside the script that it runs, and with ``python -m`` in the current folder. A file
called torch.py or random.py there, or a folder such as numpy/, is imported in the place of the real one, by
everything that imports it. The message speaks of a circular import or a missing attribute, and never of the
file.

A file in the place of a package that the contract requires, or of torch or numpy, is an error. A folder may
be the checkout of a package that is installed from there, and is a warning, as are packages that the
contract only recommends and modules of Python's own that torch needs. The framework's own checkout is no
matter. Rename the file, and remove the ``__pycache__`` beside it.
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement
from gpuready.rules import visible_gpus

CODE = "PKG020"
SEVERITY = "error"
READS = ("python.shadowed",)
BROKEN = {"python.shadowed": ("/home/u/train/torch.py",)}
HEALTHY = {"python.shadowed": ("/home/u/train/left_pad.py",)}
ALWAYS_IMPORTED = ("torch", "numpy")
STANDARD_MODULES = (
    "abc", "ast", "bisect", "calendar", "collections", "copy", "dataclasses", "datetime", "email", "enum",
    "functools", "hashlib", "heapq", "http", "importlib", "inspect", "io", "json", "logging", "math",
    "multiprocessing", "numbers", "operator", "pickle", "platform", "queue", "random", "re", "secrets",
    "select", "selectors", "signal", "socket", "ssl", "statistics", "string", "struct", "subprocess",
    "tempfile", "threading", "token", "tokenize", "traceback", "types", "typing", "uuid", "warnings",
    "weakref",
)  # fmt: skip
"""Standard modules that torch imports; own files named ``test`` and ``code`` do no harm."""


def judge(facts: Facts, contract: Contract) -> Finding | None:
    required, named = (_contract_modules(contract, "required"), _contract_modules(contract, "recommended", "optional"))
    severities: dict[str, str] = {}
    for path in map(str, facts.value("python.shadowed") or ()):
        name = path.rpartition("/")[2]
        module = name.removesuffix(".py")
        if module in ALWAYS_IMPORTED or (module in required and name.endswith(".py")):
            severities[path] = "error"
        elif module in required or module in named or module in STANDARD_MODULES:
            severities[path] = "warning"
    if not severities:
        return None
    modules = [path.rpartition("/")[2].removesuffix(".py") for path in severities]
    return Finding(
        CODE,
        "error" if "error" in severities.values() else "warning",
        f"hidden by what lies in the current folder: {visible_gpus.join_names(modules)}",
        found=(facts.fact("python.shadowed"),),
        needs=tuple(
            Requirement("python.shadowed", "none", cite=f"sys.path: {path} comes first") for path in severities
        ),
        so="what is run from here imports that file in the place of the real module",
        fix=tuple(FixStep(f"rename {path}, or run from another folder") for path in severities),
    )


def _contract_modules(contract: Contract, *levels: str) -> set[str]:
    """Return the modules of packages the contract names, except its own, whose checkout is meant to be imported."""
    names = {n.key.removeprefix("package.") for n in contract.requirements_for("package.*") if n.level in levels}
    return {name.replace("-", "_") for name in names - {contract.distribution, contract.framework}}
