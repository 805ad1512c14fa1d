"""A library that an extension module needs is missing.

## What it checks
Whether the import of torch or of the framework failed because the dynamic loader found no such library; where nothing
was imported, whether every extension module of a required package wants a library, a newer version of one, a symbol of
torch or a Python that is not here. A module beside one that loads, as wheels bring them for two CUDAs or for optional
libraries, is no finding. It is an error if an import failed by it, else a warning.

## Why it matters
``ImportError: libGL.so.1: cannot open shared object file``: the package cannot be loaded. Wheels do not bring every
library that they need, and installers do not ask for those of the system.

## How to fix
Install the system package that has the library; if it is a library of another CUDA or torch, install a build of the
package for the installed torch.

## References
- ld.so(8), how libraries are searched
- PyPA specification, platform compatibility tags, manylinux
"""

from typing import Any

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.model.facts import FILE_KINDS, LIBRARY_KINDS, find_missing_library
from gpuready.rules import fix_steps, import_damage, visible_gpus

CODE = "PKG047"
SEVERITY = "error"
READS = import_damage.READS
REQUIRED_FACTS = ("import.damage", "import.result")
CONTRACT = {"distribution": "demo"}
ROW = {
    "distribution": "opencv-python",
    "kind": "library",
    "path": "/venv/lib/python3.12/site-packages/cv2/cv2.abi3.so",
    "detail": "it needs libGL.so.1, which is not found",
    "roots": ("demo",),
}
FAILED = "ImportError: libGL.so.1: cannot open shared object file: No such file or directory"
FILE = "/venv/lib/python3.12/site-packages/cv2/__init__.py"
BROKEN = import_damage.damage_example(ROW, "4.12.0", error=FAILED, file=FILE, line=153)
HEALTHY = BROKEN | {"import.result": {"demo": {"module": "demo", "error": ""}}}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    rows = import_damage.damage_rows(facts, contract, LIBRARY_KINDS)
    failed = import_damage.find_failed_root(facts, contract)
    library = find_missing_library(failed) if failed else ""
    if failed and library and import_damage.list_cause_rows(facts, failed, FILE_KINDS):
        return None
    if failed and library and (place := failed.get("library")):
        says = f"import {failed['module']} fails: no search path of what needs {library} leads to {place}"
        owners = list(dict.fromkeys((*failed["packages"], failed["library_of"])))
        again = fix_steps.reinstall_step(facts, f"reinstall {visible_gpus.join_names(owners)}", *owners)
        return _make_finding(facts, rows, says, (again,), failed)
    if failed and library:
        return _make_finding(
            facts,
            rows,
            f"import {failed['module']} fails: {library} is missing",
            _fix_steps(facts, rows, library),
            failed,
        )
    if not rows or facts.value_if_known("import.result") is not None:
        return None
    names = visible_gpus.join_names(list(dict.fromkeys(str(row["distribution"]) for row in rows)))
    return _make_finding(facts, rows, f"{names} cannot be loaded: {rows[0]['detail']}", _fix_steps(facts, rows, ""))


def _make_finding(
    facts: Facts, rows: list[dict[str, Any]], says: str, fix: tuple[FixStep, ...], failed: dict[str, Any] | None = None
) -> Finding:
    place = f"{failed.get('file')}:{failed.get('line')}" if failed and failed.get("file") else ""
    cites = [place] if place else [f"{row['path']}: {row['detail']}" for row in rows[:5]]
    return make_finding(
        says,
        found=tuple(facts.fact(key) for key in ("import.result", "import.damage") if key in facts),
        needs=tuple(Requirement("import.damage", "none", cite=cite) for cite in cites),
        so="what imports it fails" if failed is None else "nothing that imports it runs in this environment",
        fix=fix,
        severity=SEVERITY if failed else "warning",
    )


def _fix_steps(facts: Facts, rows: list[dict[str, Any]], library: str) -> tuple[FixStep, ...]:
    foreign = [row for row in rows if row["kind"] == "python"]
    others = list(dict.fromkeys(str(row["distribution"]) for row in rows if row not in foreign))
    build = FixStep(
        f"if it is one of another CUDA or torch, install a build of {visible_gpus.join_names(others) or 'the package'} for the installed torch"
    )
    again = import_damage.reinstall_steps(facts, foreign)
    if library:
        return (FixStep(f"install the system package that has {library}"), *again, build)
    return (*again, build) if others or not foreign else again
