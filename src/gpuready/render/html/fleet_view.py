"""The fleet view: one symbol per node, sets of alike nodes, and each figure with its outliers."""

from typing import Any

from gpuready.model import Finding
from gpuready.model.facts import verdict_words
from gpuready.model.fleet import SILENT_STATES, Drift, FleetReport, NodeGroup
from gpuready.model.node_names import fold_node_names
from gpuready.render.check_report import VERDICT_ROLES
from gpuready.render.fleet import classify_nodes, expand_reported_nodes, format_figure, group_nodes
from gpuready.render.html.check_view import finding_view, mark_view

NODE_KINDS = {
    "ok": ("like the others", "h10v10h-10z"),
    "differs": ("differs or is slow", "m5 0l5 10h-10z"),
    "bad": ("not ready, or to be avoided", "h10v10h-10zm2 2l6 6m0-6l-6 6"),
    "undecided": ("can't tell", "m5 0a5 5 0 1 0 .01 0z"),
    "silent": ("no answer", "m1 1h8v8h-8z"),
    "held": ("held back by the scheduler", "m0 3h10v4h-10z"),
}
"""The meaning of a symbol, and its shape in a square of ten: each kind differs in shape, not only in colour."""
NODE_PITCH = 14
MAX_NODE_ROWS = 64
"""Rows of the table of single nodes; the JSON has all."""
MAX_NODE_SETS = 200
"""Node sets shown; the JSON has all."""


def build_fleet_view(report: FleetReport) -> dict[str, Any]:
    kind_by_node = classify_nodes(report)
    columns = _node_columns(report)
    sets = _group_like_nodes(kind_by_node, columns)
    rows = _node_rows(report, kind_by_node)
    return {
        "report": report,
        "many": f"{report.nodes:,} " + ("node" if report.nodes == 1 else "nodes"),
        "verdict": verdict_words(report.verdict),
        "mark": mark_view(VERDICT_ROLES[report.verdict]),
        "map": _node_map(kind_by_node, sets, columns),
        "rows": rows[:MAX_NODE_ROWS],
        "rows_left": max(len(rows) - MAX_NODE_ROWS, 0),
        "columns": [name for name, _ in columns],
        "sets": sets[:MAX_NODE_SETS],
        "more": max(len(sets) - MAX_NODE_SETS, 0),
        "key": [
            (kind, says, shape, f"{sum(k == kind for k in kind_by_node.values()):,}")
            for kind, (says, shape) in NODE_KINDS.items()
        ],
        "findings": [_fleet_finding_view(one) for one in report.findings],
        "figures": [_figure_table(name, rows, report) for name, rows in report.figures.items() if rows],
    }


def _fleet_finding_view(one: Finding) -> dict[str, Any]:
    """Without the fleet-wide tables, which the page shows separately."""
    return finding_view(one.replace(found=tuple(f for f in one.found if not f.key.startswith("fleet.")), needs=()))


def _node_rows(report: FleetReport, kind_by_node: dict[str, str]) -> list[dict[str, Any]]:
    """A row for each node, those with most problems first: its verdict, and each problem as code and meaning."""
    shared = _fleet_problems(report)
    rows = []
    for verdict, problems, names in group_nodes(report):
        own = [(one, report.meanings[one]) if one in report.meanings else ("", one) for one in problems]
        own = [pair for pair in own if pair[0] not in report.blames]
        for name in names:
            every = [*own, *(pair for pair in shared.get(name, ()) if pair not in own)]
            kind = kind_by_node.get(name, "ok")
            rows.append({"node": name, "kind": kind, "verdict": verdict_words(verdict), "problems": every})
    return sorted(rows, key=lambda row: -len(row["problems"]))


def _fleet_problems(report: FleetReport) -> dict[str, list[tuple[str, str]]]:
    """What the comparison of the nodes says of each: code (or nothing) and meaning."""
    found: dict[str, list[tuple[str, str]]] = {}
    sets = [(nodes, (code, _code_meaning(code, report))) for code, nodes in report.blames.items()]
    sets += [(group.nodes, ("", _drift_words(one, group))) for one in report.drift for group in one.groups]
    sets += [(one.node, ("", f"{one.figure} {one.share:+.0%} against the median")) for one in report.outliers]
    for nodes, problem in sets:
        for name in expand_reported_nodes(nodes):
            several = found.setdefault(name, [])
            same = [
                code for code, says in several if problem[1] in says
            ]  # the finding counts all nodes: say it of this one
            several[:] = [pair for pair in several if problem[1] not in pair[1]]
            several.append((same[0], problem[1]) if same else problem)
    return found


def _drift_words(one: Drift, group: NodeGroup) -> str:
    return f"{one.key or one.area} {group.value} instead of {one.want}"


def _code_meaning(code: str, report: FleetReport) -> str:
    """The words of the finding with this code, or the title of its rule."""
    return next((one.says for one in report.findings if one.code == code), report.meanings.get(code, ""))


# -- nodes by column --------------------------------------------------------------------------------------------


def _node_columns(report: FleetReport) -> list[tuple[str, dict[str, tuple[str, str]]]]:
    """Column names, and for each node with a value its kind and words."""
    states = {k: ("silent" if k in SILENT_STATES else "held", k) for k in report.states if k != "answered"}
    columns = [("answer", _cells_by_node(states, report.states))]
    verdict_kinds = {"not-ready": "bad", "undecided": "undecided"}
    verdict_cells = {k: (verdict_kinds[k], verdict_words(k)) for k in report.verdicts if k in verdict_kinds}
    columns.append(("verdict", _cells_by_node(verdict_cells, report.verdicts)))
    for one in report.drift:
        differing = {g.value: ("differs", g.value) for g in one.groups}
        columns.append((one.key or one.area, _cells_by_node(differing, {g.value: g.nodes for g in one.groups})))
    outlier_cells: dict[str, dict[str, tuple[str, str]]] = {}
    for outlier in report.outliers:
        outlier_cells.setdefault(outlier.figure, {})[outlier.node] = "differs", f"{outlier.share:+.0%}"
    columns += list(outlier_cells.items())
    blames = {code: ("bad", f"{code}: {_code_meaning(code, report)}") for code in report.blames}
    columns.append(("avoid", _cells_by_node(blames, report.blames)))
    merged: dict[str, dict[str, tuple[str, str]]] = {}  # a fact that differs in several peers is one column
    for name, cells in columns:
        merged.setdefault(name, {}).update(cells)
    return [(name, cells) for name, cells in merged.items() if cells]


def _cells_by_node(says: dict[str, tuple[str, str]], sets: dict[str, str]) -> dict[str, tuple[str, str]]:
    return {name: cell for word, cell in says.items() for name in expand_reported_nodes(sets[word])}


def _group_like_nodes(
    kind_by_node: dict[str, str], columns: list[tuple[str, dict[str, tuple[str, str]]]]
) -> list[dict[str, Any]]:
    """Nodes that are alike in every column, those with the most problems first."""
    alike: dict[tuple[Any, ...], list[str]] = {}
    for name in kind_by_node:
        alike.setdefault(tuple(cells.get(name) for _, cells in columns), []).append(name)
    rows: list[dict[str, Any]] = [
        {
            "nodes": fold_node_names(names),
            "count": len(names),
            "many": f"{len(names):,}",
            "cells": cells,
            "names": names,
        }
        for cells, names in alike.items()
    ]
    return sorted(rows, key=lambda row: (-sum(cell is not None for cell in row["cells"]), -row["count"]))


# -- map --------------------------------------------------------------------------------------------------------


def _node_map(kind_by_node: dict[str, str], sets: list[dict[str, Any]], columns: list[Any]) -> dict[str, Any]:
    """One path per kind: ten thousand nodes are six elements."""
    order = list(kind_by_node)
    across = 32 if len(order) <= 256 else 64 if len(order) <= 4096 else 128
    paths: dict[str, list[str]] = {}
    for at, name in enumerate(order):
        kind = kind_by_node[name]
        x, y = at % across * NODE_PITCH, at // across * NODE_PITCH
        paths.setdefault(kind, []).append(f"M{x} {y}{NODE_KINDS[kind][1]}")
    set_by_node = {name: n for n, row in enumerate(sets) for name in row["names"]}
    return {
        "width": min(len(order), across) * NODE_PITCH,
        "height": -(-len(order) // across) * NODE_PITCH,
        "paths": {kind: "".join(paths[kind]) for kind in NODE_KINDS if kind in paths},
        "data": {
            "names": order,
            "set": [set_by_node[name] for name in order],
            "kinds": "".join(str(list(NODE_KINDS).index(kind_by_node[name])) for name in order),
            "cells": [[list(cell) if cell else None for cell in row["cells"]] for row in sets],
            "columns": [name for name, _ in columns],
            "shapes": [[kind, says, shape] for kind, (says, shape) in NODE_KINDS.items()],
            "across": across,
            "pitch": NODE_PITCH,
        },
    }


# -- figures ----------------------------------------------------------------------------------------------------


def _figure_table(name: str, rows: dict[str, tuple[float, ...]], report: FleetReport) -> dict[str, Any]:
    """One figure with a cell for each GPU, the nodes that are furthest from the median first."""
    values = sorted(value for several in rows.values() for value in several)
    usual = values[len(values) // 2]
    kinds = {(o.node, o.gpu or 0): "bad" if o.confirmed else "differs" for o in report.outliers if o.figure == name}
    far = sorted(rows, key=lambda node: -max((abs(value - usual) for value in rows[node]), default=0.0))[:MAX_NODE_ROWS]
    words = {value: format_figure(value, name, report, usual) for value in values}
    return {
        "name": name,
        "gpus": range(max(len(rows[node]) for node in far)),
        "rows": [(node, [(kinds.get((node, at), ""), words[v]) for at, v in enumerate(rows[node])]) for node in far],
        "left": len(rows) - len(far),
        "low": words[values[0]],
        "high": words[values[-1]],
        "median": words[usual],
        "count": f"{len(values):,}",
    }
