"""The processes of a framework, and what its variables are for where the contract does not say."""

from __future__ import annotations

from gpuready.catalog import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Row = dict[str, Any]


def roles(framework: str) -> list[str]:
    """Return the process kinds of a framework, the usual one first; empty if all are alike."""
    return [row["name"] for row in load("roles")["role"] if row["framework"] == framework]


def concerns(framework: str, role: str, name: str) -> bool:
    """Return whether a variable applies to a process kind; one that no role names applies to all."""
    rows = {row["name"]: row for row in load("roles")["role"] if row["framework"] == framework}
    mine = rows.get(role)
    if mine is None or not any(name in row["variables"] for row in rows.values()):
        return True
    if name in mine.get("drops", ()):
        return False
    return name in mine["variables"] or (bool(mine.get("also")) and concerns(framework, mine["also"], name))


def emptied(framework: str, name: str) -> bool:
    """Return whether the framework sets a variable to the empty string on purpose."""
    return _row("emptied", framework, name) is not None


def passing(framework: str, name: str) -> str:
    """Return why a variable set by the framework should not be set in a shell; empty if it may be."""
    row = _row("passing", framework, name)
    return str(row["says"]) if row else ""


def meaning(name: str) -> str:
    """Return what a variable does, in a few words; empty if unknown."""
    rows = load("roles")["meaning"]
    return next((str(row["says"]) for row in rows if row["name"] == name), "")


def gated(name: str) -> Row | None:
    """Return the only hardware on which a variable is wanted."""
    return next((row for row in load("roles")["gated"] if row["name"] == name), None)


def _row(table: str, framework: str, name: str) -> Row | None:
    rows = load("roles")[table]
    return next((row for row in rows if row["framework"] == framework and row["name"] == name), None)
