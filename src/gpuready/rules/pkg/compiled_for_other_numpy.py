"""The installed numpy is incompatible with a compiled package.

## What it checks
Whether an extension module of a package that torch or the framework requires, or imports where it is installed, was
compiled with the headers of numpy 1, read from its file, while numpy 2 is installed; or takes no numpy as old as the
installed one: by the version in its file (``compiled against NumPy C-API version ... (NumPy 2.0)``), or because its code
refuses numpy 1, as that of pyarrow 26 does. It is an error if importing torch or the framework failed by it, else a
warning. torch itself is checked by PKG021.

## Why it matters
The import of that package fails with ``numpy.core.multiarray failed to import`` or ``numpy.dtype size changed, may
indicate binary incompatibility``. Old releases set no upper bound for numpy, so that installers call the pair satisfied.

## How to fix
Install a release of the package that takes the installed numpy, or the numpy that the package takes.

## References
- NumPy documentation, NumPy 2.0 migration guide, C-API changes
- pyarrow 14 and numpy 2.2, and pyarrow 26 and numpy 1.26, imported
- apache/arrow#50769: pyarrow 26 requires numpy 2
"""

from gpuready.model import Contract, Facts, Finding, FixStep, Requirement, make_finding
from gpuready.rules import fix_steps, import_damage, visible_gpus

CODE = "PKG046"
SEVERITY = "error"
READS = import_damage.READS
REQUIRED_FACTS = ("import.damage",)
CONTRACT = {"distribution": "demo"}
ROW = {
    "distribution": "pyarrow",
    "kind": "numpy",
    "path": "/venv/lib/python3.12/site-packages/pyarrow/lib.cpython-312-x86_64-linux-gnu.so",
    "detail": "it takes numpy <2, and 2.2.6 is installed",
    "want": "<2",
    "roots": ("demo",),
}
CHAIN = ("/venv/lib/python3.12/site-packages/pyarrow/__init__.py:65",)
FAILED = "ImportError: numpy.core.multiarray failed to import"
BROKEN = import_damage.damage_example(ROW, "14.0.2", error=FAILED, chain=CHAIN)
HEALTHY = BROKEN | {"import.damage": (), "import.result": {}}


def judge(facts: Facts, contract: Contract) -> Finding | None:
    failed = import_damage.find_failed_root(facts, contract)
    rows = import_damage.list_numpy_rows(facts, contract, failed)
    if not rows:
        return None
    is_met = failed is not None and import_damage.is_numpy_failure(rows, failed)
    names = list(dict.fromkeys(str(row["distribution"]) for row in rows))
    removal = import_damage.remove_unneeded_step(facts, rows)
    return make_finding(
        f"{visible_gpus.join_names(names)}: {rows[0]['detail']}",
        found=(facts.fact("import.damage"),),
        needs=tuple(
            Requirement(f"package.{name}", "of the installed numpy", cite=_first_path(rows, name)) for name in names
        ),
        so=f"importing {failed['module']} fails with it"
        if failed and is_met
        else f"importing {names[0].replace('-', '_')} fails",
        fix=(
            *(step for step in removal if step.run),
            *_fix_steps(facts, names, str(rows[0].get("want") or "<2")),
            *(step for step in removal if not step.run),
        ),
        severity=SEVERITY if is_met else "warning",
    )


def _first_path(rows: list[dict[str, object]], name: str) -> str:
    return next(str(row["path"]) for row in rows if row["distribution"] == name)


def _fix_steps(facts: Facts, names: list[str], want: str) -> tuple[FixStep, ...]:
    packages = visible_gpus.join_names(names)
    if want.startswith(">="):
        newer = fix_steps.install_step(facts, f"install numpy {want.removeprefix('>=')} or newer", f"numpy{want}")
        return newer, FixStep(f"install an older {packages}, if another package needs numpy 1")
    upgraded = [word for name in names for word in ("--upgrade-package", name)]
    newer = fix_steps.install_step(facts, f"install a newer {packages}", *upgraded, *names)
    return newer, fix_steps.install_step(facts, "keep it, and install numpy below 2", "numpy<2")
