"""Importing torch or the framework fails.

## What it checks
Without running anything: the files of torch, of the framework and of all that these require are compared with
their RECORD, the libraries of their extension modules are searched as the dynamic loader does, their
requirements are looked up, files that hide a module are found, and so is what the framework's commands import
at their start without requiring it. The same is done for installed packages that only an extra names: transformers
imports jax or scikit-learn as soon as they are there. Where something differs, import statements are followed on
paper to see whether an import meets it; where only running would tell, the rule is undecided. With ``--import`` the
modules are really imported, in a process of their own.

## Why it matters
Nothing runs. An interrupted install, a full disk, a copy from another machine, a removed package, a package that
takes another version of what is installed, or a file of the wrong name in the current folder are the usual reasons,
and installers call such an environment satisfied.

## How to fix
Reinstall the package at fault, install what is missing, remove what nothing requires, or rename the file that hides
a module. If several packages are damaged, a new environment is faster and safer.

## References
- PyPA specification, recording installed projects
- Python documentation, the import system
"""

from __future__ import annotations

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, UnknownFactError, import_rows
from gpuready.rules import import_damage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CODE = "PKG042"
SEVERITY = "error"
READS = (*import_damage.READS, "import.outcome", "import.result")
REQUIRED_FACTS = ("import.damage", "import.hidden", "import.result")
KINDS = (*import_rows.FILE_KINDS, *import_rows.NEED_KINDS, "start")
ROW = {
    "distribution": "tokenizers",
    "kind": "missing",
    "path": "/venv/lib/python3.12/site-packages/tokenizers/tokenizers.abi3.so",
    "detail": "recorded when it was installed, and not there",
    "roots": ("demo",),
}
CONTRACT = {"distribution": "demo"}
BROKEN = {
    "import.damage": (ROW,),
    "import.hidden": (),
    "import.outcome": {
        "demo": {
            "module": "demo",
            "error": "ModuleNotFoundError: No module named 'tokenizers.tokenizers'",
            "cause": ROW["path"],
            "chain": ("demo", "tokenizers"),
        }
    },
    "package.tokenizers": "0.22.1",
    "python.path": "/venv/bin/python",
}
HEALTHY = BROKEN | {"import.outcome": {"demo": {"module": "demo", "error": "", "cause": "", "chain": ()}}}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    rows = import_damage.damage_rows(facts, contract, KINDS)
    found = facts.value("import.damage") if "import.damage" in facts else ()
    hidden = (facts.value("import.hidden") if "import.hidden" in facts else ()) or ()
    result = facts.value("import.result") if "import.result" in facts else None
    if not (found or hidden or result):
        return None
    failed = import_damage.find_failed_root(facts, contract)
    if failed is None:
        _require_outcome(facts, contract, bool(rows or hidden))
        return None
    if import_damage.is_numpy_failure(import_damage.list_numpy_rows(facts, contract, failed), failed):
        return None  # PKG046 reports it
    at_fault = import_damage.list_cause_rows(facts, failed, KINDS) or rows
    return Finding(
        CODE,
        SEVERITY,
        f"import {failed['module']} fails: {_short_error(str(failed['error']))}",
        found=tuple(facts.fact(key) for key in ("import.result", "import.outcome", "import.damage") if key in facts),
        needs=tuple(_row_requirement(row) for row in at_fault[:5]),
        so=f"nothing of {contract.framework} runs in this environment",
        fix=_fix_steps(facts, contract, at_fault, hidden, failed),
    )


def _require_outcome(facts: Facts, contract: Contract, differs: bool) -> None:
    """Leave the rule undecided where something differs and nobody could follow the imports."""
    known = (facts.value("import.outcome") if differs and "import.result" not in facts else {}) or {}
    gap = next(
        (known[root]["gap"] for root in import_damage.roots_of_contract(contract) if known.get(root, {}).get("gap")), ""
    )
    if gap:
        raise UnknownFactError(facts.fact("import.outcome").replace(value=None, gap=str(gap)))


def _provide_module(row: dict[str, Any]) -> str:
    module = import_rows.absent_module(row)
    if str(row["detail"]).endswith("not in its source"):
        return f"restore {module}, which {row['path']} imports, or install {row['distribution']} again"
    return f"install the package that has the module {module}"


def _short_error(error: str) -> str:
    """``No module named 'yaml'`` of ``ModuleNotFoundError: No module named 'yaml'``."""
    kind, _, text = error.partition(": ")
    return (text or kind)[:160]


def _row_requirement(row: dict[str, Any]) -> Requirement:
    if row["kind"] in import_rows.NEED_KINDS:
        want = row.get("want") or "*"
        return Requirement(f"package.{row['distribution']}", str(want), cite=f"METADATA of {row['by']}")
    return Requirement("import.damage", "none", cite=f"{row['path']}: {row['detail']}")


def _fix_steps(
    facts: Facts, contract: Contract, rows: list[dict[str, Any]], hidden: Any, failed: dict[str, Any]
) -> tuple[FixStep, ...]:
    cause = str(failed.get("cause") or "")
    shadows = [
        import_damage.uncover_module_step(str(row["path"]), str(row["module"]))
        for row in hidden
        if row["path"] == cause
    ]
    removal = import_damage.remove_unneeded_step(facts, rows)
    steps = (
        *(step for step in removal if step.run),
        *shadows[:1],
        *import_damage.reinstall_steps(facts, contract, rows),
        *import_damage.install_needs_step(facts, rows),
        *(
            FixStep(f"restore {row['path']}, or install {row['distribution']} again")
            for row in rows
            if row["kind"] == "source"
        ),
        *(FixStep(_provide_module(row)) for row in rows if row["kind"] == "start"),
        *(step for step in removal if not step.run),
    )
    return steps or (FixStep("if several packages are affected, create a new environment"),)
