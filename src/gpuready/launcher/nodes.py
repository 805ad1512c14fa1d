"""Combine the preflight results of all nodes. Pure: results in, sentences out."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    Looks = Mapping[str, Mapping[str, Any]]

MOST = 6


def wrong(looked: Looks) -> tuple[str, str, str]:
    """Return the errors with their nodes, the fix and the rule; empty strings if there are none."""
    rows = _together(looked, "error")
    if not rows:
        return "", "", ""
    said = [f"{_nodes(nodes)}: {sight['says']}{_code(sight)}" for sight, nodes in rows[1:MOST]]
    first, where = rows[0]
    more = [f"and {len(rows) - MOST} things more"] if len(rows) > MOST else []
    says = "; ".join([f"{_nodes(where)}: {first['says']}", *said, *more])
    return says, str(first.get("fix", "")), str(first.get("code", ""))


def remarks(looked: Looks) -> list[str]:
    """Return warnings, and nodes whose preflight failed."""
    found = [
        f"{_nodes(nodes)}: {sight['says']}{_code(sight)}" for sight, nodes in _together(looked, "warning")
    ]
    gaps: dict[str, list[str]] = {}
    for node, look in looked.items():
        if look.get("gap"):
            gaps.setdefault(str(look["gap"]), []).append(node)
    return found + [
        f"{_nodes(nodes)} could not be looked at before the start: {why}" for why, nodes in gaps.items()
    ]


def _together(looked: Looks, severity: str) -> list[tuple[Mapping[str, Any], list[str]]]:
    """Return one row for each finding with all its nodes, the most frequent first."""
    found: dict[tuple[str, str], tuple[Mapping[str, Any], list[str]]] = {}
    for node, look in sorted(looked.items()):
        for sight in look.get("sights", ()):
            if sight["severity"] == severity:
                found.setdefault((sight["what"], sight["says"]), (sight, []))[1].append(node)
    return sorted(found.values(), key=lambda row: -len(row[1]))


def _nodes(names: list[str]) -> str:
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    return f"node {shown}" if len(names) == 1 else f"nodes {shown}"


def _code(sight: Mapping[str, Any]) -> str:
    return f" [{sight['code']}]" if sight.get("code") else ""
