"""What differs in the files of an environment, as far as it concerns one framework."""

from collections.abc import Iterable
from typing import Any

from gpuready.model import Contract, Facts, FixStep
from gpuready.model.facts import COMMAND_KINDS, FILE_KINDS, LIBRARY_KINDS, NEED_KINDS, NUMPY_KINDS, is_cause
from gpuready.rules import fix_steps, visible_gpus

READS = ("import.damage", "import.hidden", "import.result", *fix_steps.READS)
REINSTALLED_KINDS = (*(kind for kind in FILE_KINDS if kind != "source"), *LIBRARY_KINDS, *COMMAND_KINDS)
NUMPY_ERRORS = (
    "numpy.core.multiarray failed to import",
    "numpy.dtype size changed",
    "compiled using NumPy 1",
    "requires NumPy 2",
)


def damage_example(row: dict[str, Any], version: str = "", **result: Any) -> dict[str, Any]:
    """The facts of an environment in which one thing differs, and what the import of the framework then says."""
    package = {f"package.{row['distribution']}": version} if version else {}
    imported = {"demo": {"module": "demo", "error": "", **result}}
    facts = {"import.damage": (row,), "import.hidden": (), "import.result": imported, "python.path": "/venv/bin/python"}
    return facts | package


def uncover_module_step(path: str, module: str, is_stray: bool = False) -> FixStep:
    """The step that lets Python find a module which a file hides; one inside of a package was put there by nobody's install."""
    if "." in module or is_stray:
        does = f"delete {path}, which no package has installed: it hides the module {module}"
        return FixStep(does, ("rm", "--", path), "ask")
    return FixStep(f"rename {path.removesuffix('/__init__.py')}, or run from another folder")


def roots_of_contract(contract: Contract) -> tuple[str, ...]:
    """The distributions whose import counts: torch, and the framework's own."""
    return tuple(dict.fromkeys(name for name in ("torch", contract.distribution) if name))


def damage_rows(facts: Facts, contract: Contract, kinds: Iterable[str]) -> list[dict[str, Any]]:
    """Return the rows of these kinds that the import of torch or of the framework depends on."""
    if "import.damage" not in facts:
        return []
    roots = roots_of_contract(contract)
    rows = facts.value("import.damage") or ()
    return [row for row in rows if row["kind"] in kinds and any(root in row["roots"] for root in roots)]


def list_cause_rows(facts: Facts, failed: dict[str, Any], kinds: Iterable[str]) -> list[dict[str, Any]]:
    """Return the rows of these kinds that a failure is about, whether a root requires the package or only imports it."""
    rows = (facts.value("import.damage") if "import.damage" in facts else ()) or ()
    return [row for row in rows if row["kind"] in kinds and is_cause(row, failed)]


def find_failed_root(facts: Facts, contract: Contract) -> dict[str, Any] | None:
    """Return what happened to the first root whose import failed; None where none did, or none was tried to its end."""
    return next((row for row in _list_failed_roots(facts, contract) if not row.get("timed_out")), None)


def find_unfinished_root(facts: Facts, contract: Contract) -> dict[str, Any] | None:
    """Return the first root whose import took too long to tell."""
    return next((row for row in _list_failed_roots(facts, contract) if row.get("timed_out")), None)


def _list_failed_roots(facts: Facts, contract: Contract) -> list[dict[str, Any]]:
    known = facts.value_if_known("import.result") or {}
    rows = [{"root": root, **known.get(root, {})} for root in roots_of_contract(contract)]
    return [row for row in rows if row.get("error")]


def list_numpy_rows(facts: Facts, contract: Contract, failed: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return the rows of modules for another numpy that a root requires, or whose import fails."""
    rows = damage_rows(facts, contract, NUMPY_KINDS)
    more = list_cause_rows(facts, failed, NUMPY_KINDS) if failed else []
    return [*rows, *(row for row in more if row not in rows)]


def is_numpy_failure(rows: Iterable[dict[str, Any]], failed: dict[str, Any]) -> bool:
    """Return whether an import fails because of modules that were compiled for another numpy."""
    paths = [str(row["path"]) for row in rows if row["kind"] in NUMPY_KINDS]
    output = f"{failed['error']}\n{failed.get('output') or ''}"
    return bool(paths) and any(text in output for text in (*paths, *NUMPY_ERRORS))


def reinstall_steps(facts: Facts, rows: Iterable[dict[str, Any]]) -> tuple[FixStep, ...]:
    """Return one step that reinstalls what is damaged, and nothing else."""
    names = list(dict.fromkeys(str(row["distribution"]) for row in rows if row["kind"] in REINSTALLED_KINDS))
    if not names:
        return ()
    does = f"reinstall {visible_gpus.join_names(names)}, and nothing else"
    return (fix_steps.reinstall_step(facts, does, *names),)


def remove_unneeded_step(facts: Facts, rows: Iterable[dict[str, Any]]) -> tuple[FixStep, ...]:
    """Return one step that removes packages that no root requires, and that are imported because they are there."""
    found = [row for row in rows if not row["roots"]]
    names = list(dict.fromkeys(str(row.get("by") or row["distribution"]) for row in found))
    users = sorted({str(user) for row in found for user in row.get("users") or ()} - set(names))
    if not names:
        return ()
    if users:
        return (FixStep(f"or remove {visible_gpus.join_names([*names, *users])}, if no job uses them"),)
    does = f"remove {visible_gpus.join_names(names)}, which nothing here requires"
    return (fix_steps.uninstall_step(facts, does, *names),)


def install_needs_step(facts: Facts, rows: Iterable[dict[str, Any]]) -> tuple[FixStep, ...]:
    """Return the steps that bring what is required and absent, or of another version."""
    wants: dict[str, list[str]] = {}
    for row in rows:
        if row["kind"] in NEED_KINDS:
            wants.setdefault(str(row["distribution"]), []).append(str(row.get("want") or ""))
    copies = fix_steps.find_path_copies(facts, wants)
    words = [
        f"{name}{','.join(dict.fromkeys(want for want in found if want))}"
        for name, found in wants.items()
        if name not in copies
    ]
    install = (fix_steps.install_step(facts, f"install {' '.join(words)}", *words),) if words else ()
    return (*fix_steps.leave_path_copies_step(copies), *install)
