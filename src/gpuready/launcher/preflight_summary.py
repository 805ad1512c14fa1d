"""Combine the preflight results of all nodes. Pure: results in, sentences out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Looks = Mapping[str, Mapping[str, Any]]


MAX_SENTENCES = 6


def summarize_errors(node_results: Looks) -> tuple[str, str, str]:
    """Return the errors with their nodes, the fix and the rule; empty strings if there are none."""
    rows = _group_by_finding(node_results, "error")
    if not rows:
        return "", "", ""
    sentences = [_format_finding(item, nodes) for item, nodes in rows[1:MAX_SENTENCES]]
    first, where = rows[0]
    more = [f"and {len(rows) - MAX_SENTENCES} things more"] if len(rows) > MAX_SENTENCES else []
    says = "; ".join([f"{_format_node_names(where)}: {first['says']}", *sentences, *more])
    return says, str(first.get("fix", "")), str(first.get("code", ""))


def summarize_warnings(node_results: Looks) -> list[str]:
    """Return warnings, and nodes whose preflight failed."""
    sentences = [_format_finding(item, nodes) for item, nodes in _group_by_finding(node_results, "warning")]
    gaps: dict[str, list[str]] = {}
    for node, result in node_results.items():
        if result.get("gap"):
            gaps.setdefault(str(result["gap"]), []).append(node)
    unknown = "could not be looked at before the start"
    return sentences + [f"{_format_node_names(nodes)} {unknown}: {why}" for why, nodes in gaps.items()]


def _group_by_finding(node_results: Looks, severity: str) -> list[tuple[Mapping[str, Any], list[str]]]:
    """Return one row for each finding with all its nodes, the most frequent first."""
    groups: dict[tuple[str, str], tuple[Mapping[str, Any], list[str]]] = {}
    for node, result in sorted(node_results.items()):
        for item in result.get("sights", ()):
            if item["severity"] == severity:
                groups.setdefault((item["what"], item["says"]), (item, []))[1].append(node)
    return sorted(groups.values(), key=lambda row: -len(row[1]))


def _format_node_names(names: list[str]) -> str:
    shown = ", ".join(names[:8]) + (f" and {len(names) - 8} more" if len(names) > 8 else "")
    return f"node {shown}" if len(names) == 1 else f"nodes {shown}"


def _format_finding(item: Mapping[str, Any], nodes: list[str]) -> str:
    code = f" [{item['code']}]" if item.get("code") else ""
    return f"{_format_node_names(nodes)}: {item['says']}{code}"
