"""``gpuready contract diff``: rows added, removed and changed between two contracts."""

import re
from typing import Any

from gpuready.contracts import is_made_from_release
from gpuready.model import Contract, Record

KEY_FIELDS = {
    "needs": ("key", "when"),
    "capabilities": ("name",),
    "variables": ("name", "when"),
    "errors": ("message",),
    "steps": ("does",),
}
"""Fields that identify a row; where they differ, one row was removed and one added."""

VALUE_FIELDS = {
    "needs": ("want", "level"),
    "capabilities": ("level", "gate", "when"),
    "variables": ("access", "value", "allowed", "required"),
    "errors": ("cause", "fix", "code"),
    "steps": ("run", "safety"),
}
"""Fields that state the requirement; a new citation or note alone is no change."""


def diff_contract_rows(a: Contract, b: Contract) -> list[dict[str, str]]:
    """Return rows of change, table, name, before and after; empty where both require the same.

    What a contract made from a release borrows of another version, and the steps that it does not have, are no change.
    """
    rows = _table_changes("platforms", {"platforms": ", ".join(a.platforms)}, {"platforms": ", ".join(b.platforms)})
    a, b = _with_borrowed_levels(a, b), _with_borrowed_levels(b, a)
    tables = [table for table in KEY_FIELDS if table != "steps" or is_made_from_release(a) == is_made_from_release(b)]
    for table in tables:
        rows += _table_changes(table, _rows_by_name(table, getattr(a, table)), _rows_by_name(table, getattr(b, table)))
    return rows + _table_changes("other variables", _uses_by_name(a), _uses_by_name(b))


def _with_borrowed_levels(contract: Contract, other: Contract) -> Contract:
    """Give advice that was borrowed of another version (``…; of 0.5.0``) the level that the same row has in the other contract."""
    levels = {(need.key, need.want, need.when): need.level for need in other.needs}
    needs = [
        need.replace(level=levels.get((need.key, need.want, need.when), need.level))
        if re.search(r"; of [\d.]{1,40}$", need.cite)
        else need
        for need in contract.needs
    ]
    return contract.replace(needs=tuple(needs))


def _uses_by_name(contract: Contract) -> dict[str, str]:
    """Return how the code uses a variable that no row has: ``NAME read path:line`` -> read."""
    return {words[0]: words[1] for text in contract.other_variables if len(words := text.split(" ")) > 1}


def _table_changes(table: str, before: dict[str, str], after: dict[str, str]) -> list[dict[str, str]]:
    rows = []
    for name in [*before, *(n for n in after if n not in before)]:
        old, new = before.get(name), after.get(name)
        if old != new:
            word = "added" if old is None else "removed" if new is None else "changed"
            rows.append({"change": word, "table": table, "name": name, "before": old or "", "after": new or ""})
    return rows


def _rows_by_name(table: str, rows: tuple[Record, ...]) -> dict[str, str]:
    """Return the rows by name. Rows with equal names (required and recommended minimum) are distinguished by level."""
    found: dict[str, str] = {}
    for row in rows:
        name = " when ".join(text for text in (getattr(row, f) for f in KEY_FIELDS[table]) if text)
        if name in found:
            name = f"{name} ({getattr(row, 'level', len(found))})"
        found[name] = ", ".join(text for text in (_field_text(getattr(row, f)) for f in VALUE_FIELDS[table]) if text)
    return found


def _field_text(value: Any) -> str:
    if isinstance(value, tuple):
        return " ".join(value)
    if isinstance(value, bool):
        return "required" if value else ""
    return str(value)
