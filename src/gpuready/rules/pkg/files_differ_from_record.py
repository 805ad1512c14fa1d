"""Installed files are damaged: they are not what was installed.

## What it checks
The Python files and libraries of torch, of the framework and of all that these require against their RECORD: whether
they are there and have the recorded size; with ``--deep`` also their contents. A file that has not been written since
its RECORD was is as its package ships it. It is a warning: where an import fails, PKG042 says so. A library that is
missing is PKG047, versions in conflict are PKG044. It is an error where a command of the framework cannot be started.

## Why it matters
A file that no import needs today may be needed later, by a model or a feature that loads it on demand. A file that was
edited in place is lost with the next install.

## How to fix
Reinstall the packages named. If the change was made on purpose, ignore the finding with its reason.

## References
- PyPA specification, recording installed projects
"""

from gpuready.model import Contract, Facts, Finding, Requirement, make_finding
from gpuready.model.facts import COMMAND_KINDS, FILE_KINDS
from gpuready.rules import import_damage, visible_gpus

CODE = "PKG043"
SEVERITY = "warning"
READS = import_damage.READS
REQUIRED_FACTS = ("import.damage",)
CONTRACT = {"distribution": "demo"}
ROW = {
    "distribution": "numpy",
    "kind": "resized",
    "path": "/venv/lib/python3.12/site-packages/numpy/lib/scimath.py",
    "detail": "10 bytes instead of 4000",
    "roots": ("demo",),
}
BROKEN = import_damage.damage_example(ROW, "2.2.6")
HEALTHY = BROKEN | {"import.damage": (ROW | {"roots": ("other",)},)}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    rows = import_damage.damage_rows(facts, contract, (*FILE_KINDS, *COMMAND_KINDS))
    if not rows or import_damage.find_failed_root(facts, contract):
        return None
    files = [row for row in rows if row["kind"] in FILE_KINDS]
    names = visible_gpus.join_names(list(dict.fromkeys(str(row["distribution"]) for row in files)))
    parts = [f"{len(files)} file{'s differ' if len(files) > 1 else ' differs'} from what was installed: {names}"]
    commands = [row for row in rows if row["kind"] in COMMAND_KINDS]
    if commands:
        shown = visible_gpus.join_names([str(row["path"]).rpartition("/")[2] for row in commands])
        parts = [f"{shown} cannot be started: {commands[0]['detail']}", *(parts if files else ())]
    stops = any(row["kind"] == "command" and row["distribution"] == contract.distribution for row in commands)
    is_imported = facts.value_if_known("import.result") is not None
    return make_finding(
        "; ".join(parts),
        found=(facts.fact("import.damage"),),
        needs=tuple(Requirement("import.damage", "none", cite=f"{row['path']}: {row['detail']}") for row in rows[:5]),
        so="what loads them on demand may fail; importing the framework does not"
        if is_imported
        else "imports may fail",
        fix=import_damage.reinstall_steps(facts, rows),
        severity="error" if stops else SEVERITY,
    )
