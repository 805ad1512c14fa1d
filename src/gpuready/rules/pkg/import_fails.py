"""Importing torch or the framework fails.

## What it checks
The files of torch, of the framework and of all that these require are compared with their RECORD, the libraries of
their extension modules are searched as the dynamic loader does, their requirements are looked up, and files that hide
a module are found. Where something differs, or the files do not tell, and the environment is active or named with
``--python``, its own Python imports torch, the framework and what its commands start from: in a process of its own,
with the user's variables, without a terminal, hubs offline, GPUs hidden. ``--import`` asks for that in any case. An
environment that was only found is never started: then the rule is undecided where something differs.

## Why it matters
Nothing runs. An interrupted install, a full disk, a copy from another machine, a removed package, a package that
takes another version of what is installed, an edited file, or a file of the wrong name in the current folder are the
usual reasons, and installers call such an environment satisfied.

## How to fix
Reinstall the package at fault, install what is missing, remove what nothing requires, or rename the file that hides
a module. If several packages are damaged, a new environment is faster and safer.

## References
- PyPA specification, recording installed projects
- Python documentation, the import system
"""

import re
from typing import Any

from gpuready.catalog.torch import parse_torch_version
from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, UnknownFactError, make_finding
from gpuready.model.facts import (
    FILE_KINDS,
    LIBRARY_KINDS,
    NEED_KINDS,
    NUMPY_KINDS,
    explain_failure,
    find_missing_library,
)
from gpuready.rules import fix_steps, import_damage

CODE = "PKG042"
SEVERITY = "error"
READS = (*import_damage.READS, "package.*")
KINDS = (*FILE_KINDS, *LIBRARY_KINDS, *NEED_KINDS)
UNREGISTERED = re.compile(r"RuntimeError: operator (\w+)::\w+ does not exist")
NOT_TRIED = "files differ and nothing was imported: `gpuready check --import` would tell"
REQUIRED_FACTS = ("import.damage", "import.hidden", "import.result")
ROW = {
    "distribution": "tokenizers",
    "kind": "missing",
    "path": "/venv/lib/python3.12/site-packages/tokenizers/tokenizers.abi3.so",
    "detail": "recorded when it was installed, and not there",
    "roots": ("demo",),
}
CONTRACT = {"distribution": "demo"}
IMPORTED = {"module": "demo", "error": "", "seconds": 1.2}
FAILED = {
    "module": "demo",
    "error": "ModuleNotFoundError: No module named 'tokenizers.tokenizers'",
    "name": "tokenizers.tokenizers",
    "file": "/venv/lib/python3.12/site-packages/tokenizers/__init__.py",
    "line": 79,
    "chain": (
        "/venv/lib/python3.12/site-packages/demo/__init__.py:1",
        "/venv/lib/python3.12/site-packages/tokenizers/__init__.py:79",
    ),
}
BROKEN = import_damage.damage_example(ROW, "0.22.1", **FAILED)
HEALTHY = BROKEN | {"import.result": {"demo": IMPORTED}}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    rows = import_damage.damage_rows(facts, contract, (*KINDS, *NUMPY_KINDS))
    hidden = (facts.value("import.hidden") if "import.hidden" in facts else ()) or ()
    if "import.result" not in facts and (rows or hidden):
        raise UnknownFactError(facts.fact("import.result").replace(value=None, gap=NOT_TRIED))
    if rows or hidden or "import.result" in facts:
        facts.value("import.result")
    failed = import_damage.find_failed_root(facts, contract)
    if failed is None and (late := import_damage.find_unfinished_root(facts, contract)):
        gap = f"import {late['module']}: {late['error']}"
        raise UnknownFactError(facts.fact("import.result").replace(value=None, gap=gap))
    if failed is None or _is_of_another_rule(facts, contract, failed):
        return None
    known = (facts.value("import.damage") if "import.damage" in facts else ()) or ()
    at_fault = explain_failure([row for row in known if row["kind"] in KINDS], failed)
    return make_finding(
        f"import {failed['module']} fails: {_short_error(failed)}{_format_place(failed)}",
        found=tuple(facts.fact(key) for key in ("import.result", "import.damage") if key in facts),
        needs=(_chain_requirement(failed), *(_row_requirement(row) for row in at_fault[:5])),
        so=f"nothing of {contract.framework} runs in this environment",
        fix=_fix_steps(facts, at_fault, hidden, failed),
    )


def _is_of_another_rule(facts: Facts, contract: Contract, failed: dict[str, Any]) -> bool:
    """Whether PKG046 or PKG047 reports the failure."""
    numpy_rows = import_damage.list_numpy_rows(facts, contract, failed)
    is_of_library = find_missing_library(failed) and not import_damage.list_cause_rows(facts, failed, FILE_KINDS)
    return import_damage.is_numpy_failure(numpy_rows, failed) or bool(is_of_library)


def _short_error(failed: dict[str, Any]) -> str:
    """``No module named 'yaml'`` of ``ModuleNotFoundError: No module named 'yaml'``; of other errors all, in one line."""
    error = " ".join(str(failed["error"]).split()).removesuffix(f" ({failed.get('file')})")
    kind, _, text = error.partition(": ")
    is_import = kind in ("ModuleNotFoundError", "ImportError")
    return (text if is_import and text else f"{kind}: {text}" if text else kind)[:200]


def _format_place(failed: dict[str, Any]) -> str:
    return f" ({failed['file']}, line {failed.get('line') or 0})" if failed.get("file") else ""


def _chain_requirement(failed: dict[str, Any]) -> Requirement:
    """The imports that led to the failure, the first one first."""
    steps = [str(step) for step in failed.get("chain") or ()]
    shown = steps if len(steps) <= 6 else [*steps[:2], "...", *steps[-3:]]
    return Requirement("import.result", "no error", cite=" > ".join(shown) or f"import {failed['module']}")


def _row_requirement(row: dict[str, Any]) -> Requirement:
    if row["kind"] in NEED_KINDS:
        want = row.get("want") or "*"
        return Requirement(f"package.{row['distribution']}", str(want), cite=f"METADATA of {row['by']}")
    return Requirement("import.damage", "none", cite=f"{row['path']}: {row['detail']}")


def _fix_steps(facts: Facts, rows: list[dict[str, Any]], hidden: Any, failed: dict[str, Any]) -> tuple[FixStep, ...]:
    places = (str(failed.get("file") or ""), *(step.rpartition(":")[0] for step in failed.get("chain") or ()))
    shadows = [
        import_damage.uncover_module_step(str(row["path"]), str(row["module"]), "stray" in row)
        for row in hidden
        if row["path"] in places or str(row["path"]) in str(failed["error"])
    ]
    removal = import_damage.remove_unneeded_step(facts, rows)
    steps = (
        *(step for step in removal if step.run),
        *shadows[:1],
        *import_damage.reinstall_steps(facts, rows),
        *import_damage.install_needs_step(facts, rows),
        *(
            FixStep(f"restore {row['path']}, or install {row['distribution']} again")
            for row in rows
            if row["kind"] == "source"
        ),
        *(step for step in removal if not step.run),
    )
    return steps or _steps_by_place(facts, failed)


def _steps_by_place(facts: Facts, failed: dict[str, Any]) -> tuple[FixStep, ...]:
    """What to do where no difference of the files explains a failure: by the module that is missing, or the file that raised it."""
    name, file = str(failed.get("name") or ""), str(failed.get("file") or "")
    if str(failed["error"]).startswith("ModuleNotFoundError") and f"/{name.partition('.')[0]}/" not in file:
        return (FixStep(f"install the package that has the module {name.partition('.')[0]}"),)
    operator = UNREGISTERED.match(str(failed["error"]))
    if operator and facts.value_if_known(f"package.{operator[1]}"):
        return (_other_build_step(facts, operator[1]),)
    if packages := failed.get("packages"):
        return (fix_steps.reinstall_step(facts, f"reinstall {packages[0]}, whose code raises it", *packages),)
    place = f"see {file}, line {failed.get('line') or 0}" if file else "see what the import printed, with --json"
    return (FixStep(f"{place}; if several packages are affected, create a new environment"),)


def _other_build_step(facts: Facts, package: str) -> FixStep:
    """Install the build for the installed torch: the library of this one could not be loaded, and so registered no operators."""
    torch = str(facts.value_if_known("package.torch") or "")
    variant = parse_torch_version(torch)[1] if package in fix_steps.TORCH_BUILDS else None
    pin = fix_steps.pin_installed(facts, package).partition("+")[0]
    backend = ("--torch-backend", variant) if variant else ()
    does = f"install {package} built for torch {torch}: the library of this one registers no operators"
    return fix_steps.install_step(facts, does, *backend, "--reinstall", "--no-deps", pin)
