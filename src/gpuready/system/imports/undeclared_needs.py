"""What a framework imports beyond what its metadata requires, as far as it is installed.

Some are installed from their source and require nothing; others import what their extras name wherever they find it:
transformers imports jax, scikit-learn or tensorflow as soon as they are there, and fails with them.
"""

from __future__ import annotations

from gpuready.model.import_rows import METADATA_GONE
from gpuready.system.imports.requirements import canonical_name, parse_requirement
from gpuready.system.imports.usual_modules import USUAL_MODULES, list_usual_modules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from gpuready.system.imports.damage import Survey

UNUSED_EXTRAS = ("dev", "test", "doc", "lint", "quality", "build", "bench", "example", "all", "ruff", "typing", "mypy")
"""How extras begin that nobody's code imports: tools of its developers; what ``all`` names, another extra does."""


def list_imported_names(survey: Survey, modules: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return the installed distributions that have these modules, without those that are known."""
    tops = {module.partition(".")[0] for module in modules} - survey.stdlib_names
    named = {top: name for top in tops if (name := _find_by_name(survey, top))}
    rest = {top for top in tops - named.keys() if _is_installed(survey, top)}
    found = set(named.values())
    for copies in survey.copies.values() if rest else ():
        if not rest.isdisjoint(copies[0].list_top_modules()):
            found.add(copies[0].name)
    return sorted(found - set(known))


def describe_absence(survey: Survey, name: str) -> str:
    """``not installed``, or that only its metadata is missing: then it imports all the same."""
    folders = survey.path.folders
    modules = [module for module in list_usual_modules(name) if module not in survey.stdlib_names]
    is_there = any(survey.shadows.find_module_file(folder, module) for module in modules for folder in folders)
    return METADATA_GONE if is_there else "not installed"


def _is_installed(survey: Survey, top: str) -> bool:
    folders = survey.path.folders
    return any(top in (names := survey.path.list_folder(folder)) or f"{top}.py" in names for folder in folders)


def _find_by_name(survey: Survey, top: str) -> str:
    """The distribution that has a module, by its name."""
    names = [canonical_name(top), *(name for name, module in USUAL_MODULES.items() if module == top)]
    return next((name for name in names if name in survey.copies), "")


def list_optional_names(survey: Survey, names: Iterable[str]) -> list[str]:
    """Return the installed distributions that only extras of these name."""
    known = set(names)
    found: dict[str, None] = {}
    for name in known:
        for text in survey.copies[name][0].list_requirements():
            extra = text.partition("extra")[2].lstrip("= '\"")
            if not extra or extra.startswith(UNUSED_EXTRAS):
                continue
            wanted = parse_requirement(text)[0]
            if wanted in survey.copies and wanted not in known:
                found[wanted] = None
    return sorted(found)


def list_users(survey: Survey, name: str) -> list[str]:
    """Return the installed distributions that require one, whether they were looked at or not; what only an extra names does not count."""
    wanted = {
        user: [parse_requirement(text) for text in copies[0].list_requirements()]
        for user, copies in survey.copies.items()
    }
    return sorted(
        user for user, rows in wanted.items() if any(row[0] == name and "extra" not in row[3] for row in rows)
    )
