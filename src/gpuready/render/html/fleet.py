"""The fleet view: one symbol per node, sets of alike nodes, and each figure with its outliers."""

from __future__ import annotations

from gpuready.render.fleet import names
from gpuready.render.fleet_html import squares
from gpuready.render.html.judged import ROLES, finding, mark

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from gpuready.fleeted import FleetReport
    from gpuready.model import Finding

KINDS = {
    "ok": ("like the others", "h10v10h-10z"),
    "differs": ("differs or is slow", "m5 0l5 10h-10z"),
    "bad": ("not ready, or to be avoided", "h10v10h-10zm2 2l6 6m0-6l-6 6"),
    "undecided": ("undecided", "m5 0a5 5 0 1 0 .01 0z"),
    "silent": ("no answer", "m1 1h8v8h-8z"),
    "held": ("held back by the scheduler", "m0 3h10v4h-10z"),
}
"""The meaning of a symbol, and its shape in a square of ten: each kind differs in shape, not only in colour."""
PITCH = 14
MOST = 200
"""Node sets shown; the JSON has all."""


def view(report: FleetReport) -> dict[str, Any]:
    known = {name: kind for name, (kind, _) in squares(report).items()}
    columns = _columns(report)
    sets = _sets(known, columns)
    return {
        "report": report,
        "many": f"{report.nodes:,} " + ("node" if report.nodes == 1 else "nodes"),
        "verdict": report.verdict.replace("-", " "),
        "mark": mark(ROLES[report.verdict]),
        "map": _map(known, sets, columns),
        "columns": [name for name, _ in columns],
        "sets": sets[:MOST],
        "more": max(len(sets) - MOST, 0),
        "key": [
            (kind, says, shape, f"{sum(k == kind for k in known.values()):,}")
            for kind, (says, shape) in KINDS.items()
        ],
        "findings": [_finding(one) for one in report.findings],
        "figures": [_figure(name, rows, report) for name, rows in report.figures.items() if rows],
    }


def _finding(one: Finding) -> dict[str, Any]:
    """Without the fleet-wide tables, which the page shows separately."""
    return finding(one.but(found=tuple(f for f in one.found if not f.key.startswith("fleet.")), needs=()))


# -- nodes by column --------------------------------------------------------------------------------------------


def _columns(report: FleetReport) -> list[tuple[str, dict[str, tuple[str, str]]]]:
    """Column names, and for each node with a value its kind and words."""
    quiet = {"dead", "slow", "refused", "garbled"}
    columns = [
        (
            "answer",
            _spread(
                {k: ("silent" if k in quiet else "held", k) for k in report.states if k != "answered"},
                report.states,
            ),
        )
    ]
    grave = {"not-ready": "bad", "undecided": "undecided"}
    told = {k: (grave.get(k, "ok"), k.replace("-", " ")) for k in report.verdicts if k in grave}
    columns.append(("verdict", _spread(told, report.verdicts)))
    for one in report.drift:
        cells = _spread(
            {g.value: ("differs", g.value) for g in one.groups}, {g.value: g.nodes for g in one.groups}
        )
        columns.append((one.key or one.facet, cells))
    slow: dict[str, dict[str, tuple[str, str]]] = {}
    for far in report.outliers:
        slow.setdefault(far.figure, {})[far.node] = "differs", f"{far.share:+.0%}"
    columns += list(slow.items())
    columns.append(("avoid", _spread({code: ("bad", code) for code in report.blames}, report.blames)))
    return [(name, cells) for name, cells in _merged(columns) if cells]


def _spread(says: dict[str, tuple[str, str]], sets: dict[str, str]) -> dict[str, tuple[str, str]]:
    return {name: cell for word, cell in says.items() for name in names(sets[word])}


def _merged(
    columns: list[tuple[str, dict[str, tuple[str, str]]]],
) -> list[tuple[str, dict[str, tuple[str, str]]]]:
    """One column per name: a fact that differs in several strata appears once."""
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for name, cells in columns:
        found.setdefault(name, {}).update(cells)
    return list(found.items())


def _sets(
    known: dict[str, str], columns: list[tuple[str, dict[str, tuple[str, str]]]]
) -> list[dict[str, Any]]:
    """Nodes that are alike in every column, those with the most problems first."""
    alike: dict[tuple[Any, ...], list[str]] = {}
    for name in known:
        alike.setdefault(tuple(cells.get(name) for _, cells in columns), []).append(name)
    rows = [
        {
            "nodes": fold(several),
            "count": len(several),
            "many": f"{len(several):,}",
            "cells": cells,
            "names": several,
        }
        for cells, several in alike.items()
    ]
    return sorted(rows, key=lambda row: (-sum(cell is not None for cell in row["cells"]), -row["count"]))


def fold(several: Iterable[str]) -> str:
    """``n01 n02 n05`` -> ``n[01-02,05]``: names that differ only in their final number."""
    groups: dict[tuple[str, int], list[int]] = {}
    lone = []
    for name in several:
        stem = name.rstrip("0123456789")
        digits = name[len(stem) :]
        if digits and digits.isascii() and len(digits) < 12:
            groups.setdefault((stem, len(digits)), []).append(int(digits))
        else:
            lone.append(name)
    folded = [_ranges(stem, width, sorted(numbers)) for (stem, width), numbers in groups.items()]
    return ",".join([*folded, *lone])


def _ranges(stem: str, width: int, numbers: list[int]) -> str:
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    told = [f"{a:0{width}d}" if a == b else f"{a:0{width}d}-{b:0{width}d}" for a, b in spans]
    return f"{stem}{told[0]}" if len(numbers) == 1 else f"{stem}[{','.join(told)}]"


# -- map --------------------------------------------------------------------------------------------------------


def _map(known: dict[str, str], sets: list[dict[str, Any]], columns: list[Any]) -> dict[str, Any]:
    """One path per kind: ten thousand nodes are six elements."""
    order = list(known)
    across = 32 if len(order) <= 256 else 64 if len(order) <= 4096 else 128
    paths: dict[str, list[str]] = {}
    for at, name in enumerate(order):
        kind = known[name]
        x, y = at % across * PITCH, at // across * PITCH
        paths.setdefault(kind, []).append(f"M{x} {y}{KINDS[kind][1]}")
    of = {name: n for n, row in enumerate(sets) for name in row["names"]}
    return {
        "width": min(len(order), across) * PITCH,
        "height": -(-len(order) // across) * PITCH,
        "paths": {kind: "".join(paths[kind]) for kind in KINDS if kind in paths},
        "data": {
            "names": order,
            "set": [of[name] for name in order],
            "kinds": "".join(str(list(KINDS).index(known[name])) for name in order),
            "cells": [[list(cell) if cell else None for cell in row["cells"]] for row in sets],
            "columns": [name for name, _ in columns],
            "shapes": [[kind, says, shape] for kind, (says, shape) in KINDS.items()],
            "across": across,
            "pitch": PITCH,
        },
    }


# -- figures ----------------------------------------------------------------------------------------------------

WIDE = 1000


def _figure(name: str, rows: dict[str, tuple[float, ...]], report: FleetReport) -> dict[str, Any]:
    """All values of one figure on a line; outliers are named."""
    values = sorted(value for several in rows.values() for value in several)
    low, high = values[0], values[-1]
    scale = (WIDE - 20) / ((high - low) or 1)
    places = [10 + (value - low) * scale for value in values]
    far = [one for one in report.outliers if one.figure == name]
    return {
        "name": name,
        "ticks": "".join(dict.fromkeys(f"M{x:.1f} 8v16" for x in places)),
        "middle": 10 + (values[len(values) // 2] - low) * scale,
        "far": [
            {
                "x": min(max(10 + (one.value - low) * scale, 10), WIDE - 10),
                "node": one.node,
                "share": f"{one.share:+.0%}",
            }
            for one in far
        ],
        "low": f"{low:,.4g}",
        "high": f"{high:,.4g}",
        "median": f"{values[len(values) // 2]:,.4g}",
        "count": f"{len(values):,}",
    }
