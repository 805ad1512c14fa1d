"""A package that others require is missing, or has another version than they ask for.

## What it checks
What torch, the framework and all that these require state in their metadata (``Requires-Dist``, with its markers and
extras) against what is installed. What the framework requires is PKG002 and PKG003. It is a warning:
where an import fails, PKG042 says so.

## Why it matters
The package that states the requirement was not tested without it. Parts that are loaded on demand fail later.

## How to fix
Install the versions named in the fix.

## References
- PyPA specification, core metadata, Requires-Dist
"""

from gpuready.model import Contract, Facts, Finding, Requirement, make_finding
from gpuready.model.facts import NEED_KINDS, NO_METADATA
from gpuready.rules import import_damage, visible_gpus

CODE = "PKG044"
SEVERITY = "warning"
READS = import_damage.READS
REQUIRED_FACTS = ("import.damage",)
CONTRACT = {"distribution": "demo"}
ROW = {
    "distribution": "jinja2",
    "kind": "absent",
    "path": "",
    "detail": "not installed",
    "by": "torch",
    "want": "",
    "roots": ("torch", "demo"),
}
BROKEN = import_damage.damage_example(ROW)
HEALTHY = BROKEN | {"import.damage": (ROW | {"roots": ("other",)},)}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    needs = [need for need in contract.requirements_for("package.*") if need.level == "required"]
    stated = {need.key.removeprefix("package.") for need in needs}
    rows = import_damage.damage_rows(facts, contract, NEED_KINDS)
    rows = [row for row in rows if row["distribution"] not in stated or row["kind"] == NO_METADATA]
    if not rows or import_damage.find_failed_root(facts, contract):
        return None
    names = list(dict.fromkeys(f"{row['distribution']} ({row['detail']})" for row in rows))
    return make_finding(
        f"required by installed packages: {visible_gpus.join_names(names)}",
        found=(facts.fact("import.damage"),),
        needs=tuple(
            Requirement(f"package.{row['distribution']}", str(row["want"] or "*"), cite=f"METADATA of {row['by']}")
            for row in rows
        ),
        so="parts that need them fail when they are used",
        fix=import_damage.install_needs_step(facts, rows),
    )
