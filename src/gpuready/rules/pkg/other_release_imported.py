"""A package imports what the installed release of another package does not have.

## What it checks
Pairs of releases whose import is known to fail, or to leave torch unused, though the metadata of both allows them: read
from the files of their releases, and tried. Pairs that are not in that table are not judged. It is an error if the
framework, the job or a file needs the package, else a warning, as for a part that not every use of a package imports. A
package that was really imported here is not reported.

## Why it matters
``ImportError: cannot import name 'HybridCache' from 'transformers'``: peft 0.17 asks for transformers of any release, and
5.0 has no such name. An installer takes the newest of both.

## How to fix
Install the release that still has it, or a newer release of the package that imports it.

## References
- Wheels of both packages (tools/list_wheel_conflicts.py)
"""

from typing import Any

from gpuready.catalog import packages as catalogue
from gpuready.model import NOT_STATED, Contract, Facts, Finding, Requirement, make_finding
from gpuready.rules import fix_steps, torch_compatibility, visible_gpus

CODE = "PKG048"
SEVERITY = "error"
READS = ("package.*", "python.packages", "import.result", *torch_compatibility.READS)
REQUIRED_FACTS = ("python.packages",)
CONTRACT = {"distribution": "peft", "platforms": ("cuda",)}
BROKEN = {
    "python.packages": 90,
    "package.peft": "0.17.1",
    "package.transformers": "5.1.0",
    "python.path": "/venv/bin/python",
}
HEALTHY = BROKEN | {"package.transformers": "4.57.1"}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    keys = (f"package.{name}" for name in catalogue.names_in_import_conflicts())
    known = [key for key in keys if facts.fact(key).gap != NOT_STATED]  # of a plan: all that it has
    is_listed = facts.fact("python.packages").gap != NOT_STATED  # else a pair of what is stated is enough
    if (is_listed or len(known) < 2) and not facts.value("python.packages"):
        return None
    have = {key.removeprefix("package."): str(version) for key in known if (version := facts.value(key))}
    rows = [row for row in catalogue.find_import_conflicts(have) if not _is_imported(facts, _name(row["a"]))]
    if not rows:
        return None
    rows.sort(key=lambda row: "part" in row)
    needs = tuple(_need(row, have) for row in rows)
    named = [f"{name} {have[name]}" for row in rows for name in (_name(row["a"]), _name(row["b"]))]
    wanted = {need.key.removeprefix("package."): need.want for need in needs}
    return make_finding(
        f"{visible_gpus.join_names(list(dict.fromkeys(named)), 6)} do not work together: {rows[0]['why']}",
        found=tuple(facts.fact(f"package.{n}") for row in rows for n in (_name(row["a"]), _name(row["b"]))),
        needs=needs,
        so=f"importing {rows[0].get('part') or _name(rows[0]['a'])} fails, or what it needs of {_name(rows[0]['b'])} is not used",
        fix=(fix_steps.install_packages_step(facts, contract, wanted),),
        severity=torch_compatibility.worst_severity(_severity(facts, contract, row) for row in rows),
    )


def _name(requirement: str) -> str:
    return catalogue.split_requirement(requirement)[0]


def _need(row: dict[str, Any], have: dict[str, str]) -> Requirement:
    """Return the releases that would do: of the package that lacks something; where that is torch, of the other one."""
    is_torch = _name(row["b"]) == "torch"
    changed = row["a"] if is_torch or row.get("change") == "a" else row["b"]
    if is_torch and (want := _releases_for_torch(_name(row["a"]), have)):
        return Requirement(f"package.{_name(row['a'])}", want, cite=str(row["source"]))
    name, lacking = catalogue.split_requirement(changed)
    operator, bound = (">=", lacking[1:]) if lacking[1:2].isdigit() else ("<", lacking[2:].partition(",")[0])
    return Requirement(f"package.{name}", f"{operator}{bound}", cite=str(row["source"]))


def _releases_for_torch(name: str, have: dict[str, str]) -> str:
    """Return the releases of a package that no row holds against this torch: ``>0.8.1,<0.18.9``.

    What torch no longer has is asked for by all older ones too, and what it does not have yet by all newer ones.
    """
    rows = [row for row in catalogue.find_import_conflicts(have, any_release_of=name) if _name(row["a"]) == name]
    ranges = {row["a"]: row["b"] for row in rows if _name(row["b"]) == "torch" and "<=" in row["a"]}
    older = [one.rpartition("<=")[2] for one, torch in ranges.items() if ">" in torch]
    newer = [one.partition(">=")[2].partition(",")[0] for one, torch in ranges.items() if ">" not in torch]
    return ",".join([*(f">{one}" for one in older[-1:]), *(f"<{one}" for one in newer[:1])])


def _is_imported(facts: Facts, name: str) -> bool:
    """Whether the package was really imported, and nothing happened."""
    result = (facts.value_if_known("import.result") or {}).get(name)
    return result is not None and not result.get("error")


def _severity(facts: Facts, contract: Contract, row: dict[str, Any]) -> str:
    own = _name(row["a"]) == (contract.distribution or contract.framework)
    severity = "error" if own else torch_compatibility.package_severity(facts, contract, _name(row["a"]))
    return "warning" if "part" in row else severity
