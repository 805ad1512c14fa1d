"""The processes of a framework, and what its variables are for where its contract alone does not tell."""

from __future__ import annotations

from gpuready.catalog import load

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    Row = dict[str, Any]


def roles(framework: str) -> list[str]:
    """The kinds of process that a framework has, the usual one first; none where all are alike."""
    return [row["name"] for row in load("roles")["role"] if row["framework"] == framework]


def concerns(framework: str, role: str, name: str) -> bool:
    """Whether a variable is for a kind of process: one that no role names is for all of them."""
    rows = {row["name"]: row for row in load("roles")["role"] if row["framework"] == framework}
    mine = rows.get(role)
    if mine is None or not any(name in row["variables"] for row in rows.values()):
        return True
    if name in mine.get("drops", ()):
        return False
    return name in mine["variables"] or (bool(mine.get("also")) and concerns(framework, mine["also"], name))


def emptied(framework: str, name: str) -> bool:
    """Whether the framework sets a variable to nothing, on purpose."""
    return _row("emptied", framework, name) is not None


def passing(framework: str, name: str) -> str:
    """Why a variable that the framework sets is none for a shell; empty where it is one."""
    row = _row("passing", framework, name)
    return str(row["says"]) if row else ""


def meaning(name: str) -> str:
    """What a variable does, in a few words; empty where the catalogue does not say."""
    rows = load("roles")["meaning"]
    return next((str(row["says"]) for row in rows if row["name"] == name), "")


def gated(name: str) -> Row | None:
    """The hardware on which alone a variable is wanted."""
    return next((row for row in load("roles")["gated"] if row["name"] == name), None)


def _row(table: str, framework: str, name: str) -> Row | None:
    rows = load("roles")[table]
    return next((row for row in rows if row["framework"] == framework and row["name"] == name), None)
