"""What installing or removing a package changes in what is known of imports: which differences it settles."""

from __future__ import annotations

from typing import Any

from gpuready.model import Facts, facts, versions


def change_import_values(facts: Facts, name: str, version: str | None) -> dict[str, Any]:
    """Return the values of import facts after a package is installed (again) in a version, or removed."""
    rows = facts.value_if_known("import.damage") or ()
    before = str(facts.value_if_known(f"package.{name}") or "")
    gone = [row for row in rows if _is_settled(row, name, version, before)]
    if not gone:
        return {}
    kept = tuple(row for row in rows if row not in gone)
    changed: dict[str, Any] = {"import.damage": kept}
    if known := facts.value_if_known("import.result"):
        changed["import.result"] = {root: _without_failure(row, gone, kept) for root, row in known.items()}
    return changed


def _is_settled(row: dict[str, Any], name: str, version: str | None, before: str) -> bool:
    kind, want = row["kind"], str(row.get("want") or "")
    if row.get("by") == name:
        return version != before  # another release asks for something else, which is not known
    if kind in facts.NUMPY_KINDS and name == "numpy":
        return version is not None and _satisfies(version, want)
    if row["distribution"] != name:
        return False
    return kind not in facts.NEED_KINDS or (version is not None and _satisfies(version, want))


def _satisfies(version: str, specifier: str) -> bool:
    return not specifier or versions.is_satisfied(version, specifier) is not False


def _without_failure(failed: dict[str, Any], gone: list[Any], kept: tuple[Any, ...]) -> dict[str, Any]:
    """A root's result without its error, if only rows that are gone explain it."""
    if not failed.get("error"):
        return failed
    explains = [any(facts.is_cause(row, failed) for row in rows) for rows in (gone, kept)]
    return failed | {"error": "", "file": "", "line": 0, "chain": ()} if explains == [True, False] else failed
