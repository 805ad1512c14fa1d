"""A file of the current folder hides an installed module.

## What it checks
Whether the current folder, or a folder of PYTHONPATH, has a file or folder with the name of a module, such as
torch.py, random.py or numpy/. A file that hides torch, numpy, the framework or a required package is an error.
A folder (it may be the checkout of an installed package), another module that the framework imports, or a
standard module that torch needs is a warning; where an import would fail for it, PKG042 says so.

## Why it matters
Python searches the script's folder first, and with ``python -m`` the current folder. It imports that file
instead of the real module. The error mentions a circular import or a missing attribute, not the file.

## How to fix
Rename the file, and remove the ``__pycache__`` beside it.

## References
- Python documentation, the initialization of the sys.path module search path
"""

from typing import Any

from gpuready.model import Contract, Facts, Finding, Requirement, make_finding
from gpuready.rules import import_damage, visible_gpus

CODE = "PKG020"
SEVERITY = "error"
READS = ("python.shadowed", "import.hidden")
REQUIRED_FACTS = ("python.shadowed", "import.hidden")
BROKEN = {"python.shadowed": ("/home/u/train/torch.py",), "import.hidden": ()}
HEALTHY = {"python.shadowed": ("/home/u/train/left_pad.py",), "import.hidden": ()}
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
    own = {name.replace("-", "_") for name in (contract.distribution, contract.framework) if name}
    severities: dict[str, str] = {}
    for path, is_imported in _hiding_paths(facts).items():
        name = path.rpartition("/")[2]
        module = name.partition(".")[0]
        if module in ALWAYS_IMPORTED or (module in required | own and module != name):
            severities[path] = "error"
        elif module in required | named or module in STANDARD_MODULES or is_imported:
            severities[path] = "warning"
    if not severities:
        return None
    strays = {
        str(row["path"]).removesuffix("/__init__.py"): str(row["path"])
        for row in _list_hidden_rows(facts)
        if "stray" in row
    }
    inside = {str(row["path"]).removesuffix("/__init__.py"): str(row["module"]) for row in _list_hidden_rows(facts)}
    modules = {path: inside.get(path) or path.rpartition("/")[2].partition(".")[0] for path in severities}
    return make_finding(
        f"hidden by a file that Python finds first: {visible_gpus.join_names(list(modules.values()))}",
        found=tuple(facts.fact(key) for key in READS if key in facts),
        needs=tuple(
            Requirement("python.shadowed", "none", cite=f"sys.path: {path} comes first") for path in severities
        ),
        so="programs run from here import that file instead of the real module",
        fix=tuple(
            import_damage.uncover_module_step(strays.get(path, path), name, path in strays)
            for path, name in modules.items()
        ),
        severity="error" if "error" in severities.values() else "warning",
    )


def _hiding_paths(facts: Facts) -> dict[str, bool]:
    """Return the files and folders that hide a module, and whether it is one of a package that is imported."""
    paths = {str(path): False for path in facts.value("python.shadowed") or ()}
    rows = _list_hidden_rows(facts)
    return paths | {str(row["path"]).removesuffix("/__init__.py"): True for row in rows}


def _list_hidden_rows(facts: Facts) -> list[dict[str, Any]]:
    rows = (facts.value("import.hidden") if "import.hidden" in facts else ()) or ()
    return [row for row in rows if row["distribution"] != "python"]


def _contract_modules(contract: Contract, *levels: str) -> set[str]:
    """Return the modules of packages the contract names, except its own."""
    names = {n.key.removeprefix("package.") for n in contract.requirements_for("package.*") if n.level in levels}
    return {name.replace("-", "_") for name in names - {contract.distribution, contract.framework}}
