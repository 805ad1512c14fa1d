"""Charts: measured against expected values, and the memory of a step over its phases."""

from __future__ import annotations

from gpuready.render import bench as benching
from gpuready.render import fit as fitting
from gpuready.render.html.judged import finding, mark

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from gpuready.benched import Benched, Measure
    from gpuready.fitted import Fitted, Place
    from gpuready.model import Finding

WIDE, LABEL, RIGHT, ROW = 1000, 190, 250, 30
ACROSS = WIDE - LABEL - RIGHT
BESIDE = 90
"""Space after the longest stack for its total."""


# -- bench ------------------------------------------------------------------------------------------------------


def bench(found: Benched) -> dict[str, Any]:
    """One chart per device, and the measures without a number."""
    devices = [
        _device(device, benching._named(found, device), rows)
        for device, rows in benching._by_device(found).items()
    ]
    findings = [_finding(one) for one in found.report.findings]
    return {"devices": devices, "silent": _silent(found), "findings": findings, "found": found}


def _finding(one: Finding) -> dict[str, Any]:
    """Without the measured values, which are shown above it."""
    return finding(one.but(found=tuple(f for f in one.found if not f.key.startswith("bench.")), needs=()))


def _device(device: str, name: str, rows: list[Measure]) -> dict[str, Any]:
    most = max([1.05, *(one.ratio for one in rows if one.ratio is not None and one.ratio < 3)])
    scale = ACROSS / (most * 1.03)
    bars = [_bar(one, n, scale) for n, one in enumerate(rows)]
    ticks = [{"x": LABEL + share * scale, "says": f"{share:.0%}"} for share in (0, 0.25, 0.5, 0.75, 1.0)]
    return {
        "name": device,
        "says": name,
        "bars": bars,
        "chart": any(bar["w"] for bar in bars),
        "ticks": ticks,
        "height": len(rows) * ROW + 40,
        "width": WIDE,
    }


def _bar(one: Measure, n: int, scale: float) -> dict[str, Any]:
    ratio = min(one.ratio, 3.0) if one.ratio is not None and one.ratio >= 0 else None
    known = one.expected is not None and one.ratio is not None
    return {
        "name": one.name,
        "y": 30 + n * ROW,
        "w": max(ratio * scale, 1) if ratio is not None else 0,
        "band": _band(one, scale),
        "value": benching.amount(one.value, one.unit) or "nothing",
        "expected": benching.amount(one.expected, one.unit, one.value) if known else "",
        "share": f"{one.ratio:.0%}" if known and one.ratio is not None else "",
        "verdict": one.verdict.replace("-", " "),
        "mark": mark(benching.MARKS.get(one.verdict, "undecided")) if one.verdict != "measured" else None,
        "kind": benching.MARKS.get(one.verdict, "undecided"),
        "one": one,
        "passes": [benching.amount(each, one.unit) for each in one.passes],
        "bounds": [benching.amount(each, one.unit) for each in one.band],
    }


def _band(one: Measure, scale: float) -> dict[str, float] | None:
    """The band as shares of the expected value; inverted where less is better."""
    if len(one.band) != 2 or not one.expected or one.ratio is None or not all(one.band) or not one.value:
        return None
    shares = [edge / one.expected for edge in one.band]
    if abs(one.value / one.expected - one.ratio) > 0.01 * one.ratio:
        shares = [1 / share for share in shares]
    low, high = min(shares), min(max(shares), 3.0)
    return {"x": LABEL + low * scale, "w": max((high - low) * scale, 2)} if low < 3 else None


def _silent(found: Benched) -> list[tuple[str, str, str]]:
    groups: dict[tuple[str, str], list[str]] = {}
    for one in found.measures:
        if one.verdict in benching.QUIET:
            groups.setdefault((one.verdict, one.why), []).append(one.name)
    return [(verdict, ", ".join(dict.fromkeys(names)), why) for (verdict, why), names in groups.items()]


# -- memory -----------------------------------------------------------------------------------------------------

KINDS = (
    "parameters", "gradients", "optimizer", "activations", "loss", "adapters", "workspaces", "cache", "quantisation", "other",
)  # fmt: skip
"""Kinds with their own colour, in stack order."""
AROUND = "CUDA and its libraries"
LOST = "between blocks"


def memory(found: Fitted) -> dict[str, Any]:
    """Stacked bars, one per phase, against the memory of the GPUs."""
    stacks = {name: dict(parts) for name, parts in found.stacks.items() if parts}
    if not stacks and found.parts:
        stacks = {found.peak_at[0] or "at the peak": dict(found.parts)}
    view: dict[str, Any] = {
        "found": found,
        "words": _setup(found),
        "verdict": mark(fitting.MARKS[found.verdict]),
    }
    view |= {"because": fitting._because(found), "places": [_place(place, found) for place in found.places]}
    view |= {"proposals": [_proposal(one) for one in found.proposals]}
    if found.minimum is None or not stacks:
        return view | {"chart": None}
    return view | {"chart": _stacked(found, stacks)}


def _setup(found: Fitted) -> str:
    try:
        return ", ".join(fitting._words(dict(found.job), found.said))
    except (KeyError, TypeError):  # written by another version
        return ""


def _proposal(one: Any) -> dict[str, Any]:
    needs = fitting._size(one.minimum + one.peak_device - one.peak_reserved)
    return {"says": one.says, "costs": one.costs, "needs": needs, "settings": one.settings, "run": one.run}


def _place(place: Place, found: Fitted) -> dict[str, Any]:
    count = f"{len(place.indexes)} x " if len(place.indexes) > 1 else ""
    verdict = place.verdict if found.minimum is not None else "undecided"
    return {
        "mark": mark(fitting.MARKS.get(verdict, "undecided")),
        "name": f"{count}{place.name}",
        "memory": fitting._band(*place.memory) if place.memory else "",
        "verdict": f"{verdict}{fitting._left(place)}",
    }


def _stacked(found: Fitted, stacks: dict[str, dict[str, int]]) -> dict[str, Any]:
    extra = found.overhead[1] if len(found.overhead) == 2 else 0
    needed = (found.minimum or 0) + extra
    rooms = {place.name: place.room[1] for place in found.places if len(place.memory) == 2}
    most = max([needed, *(sum(parts.values()) + extra for parts in stacks.values()), *rooms.values()]) or 1
    scale = (WIDE - LABEL - BESIDE) / most
    peak = max(stacks, key=lambda name: sum(stacks[name].values()))
    lost = max(needed - extra - sum(stacks[peak].values()), 0)
    rows = [
        _row(name, parts, extra, lost if name == peak else 0, n, scale)
        for n, (name, parts) in enumerate(stacks.items())
    ]
    kinds = list(dict.fromkeys(one["kind"] for row in rows for one in row["segments"]))
    marks = [
        {"x": LABEL + room * scale, "says": f"{name} {fitting._size(room)}", "over": room < needed}
        for name, room in sorted(rooms.items(), key=lambda item: item[1])
    ]
    return {
        "rows": rows,
        "legend": [(_colour(kind), kind) for kind in sorted(kinds, key=_order)],
        "marks": _apart(marks),
        "height": len(rows) * (ROW + 10) + 24 + 18 * max(len(marks), 1),
        "top": 18 + 18 * max(len(marks), 1),
        "width": WIDE,
        "needed": fitting._size(needed),
        "moment": fitting._moment(found),
    }


def _apart(marks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put each label on a line of its own, so that none overlap."""
    return [one | {"y": 20 + 18 * n, "end": one["x"] > WIDE - 260} for n, one in enumerate(marks)]


def _row(name: str, parts: dict[str, int], extra: int, lost: int, n: int, scale: float) -> dict[str, Any]:
    pieces = sorted(
        ((kind, size) for kind, size in parts.items() if size > 0), key=lambda one: _order(one[0])
    )
    pieces += [(LOST, lost)] if lost else []
    pieces += [(AROUND, extra)] if extra else []
    x, segments = float(LABEL), []
    for kind, size in pieces:
        wide = size * scale
        said = len(kind) * 6.6 + 8 < wide
        segments.append(
            {
                "kind": kind,
                "colour": _colour(kind),
                "x": x,
                "w": wide,
                "size": fitting._size(size),
                "label": said,
            }
        )
        x += wide
    total = sum(size for _, size in pieces)
    return {"name": name, "n": n, "segments": segments, "total": fitting._size(total), "end": x}


def _order(kind: str) -> int:
    every = (*KINDS, LOST, AROUND)
    return every.index(kind) if kind in every else KINDS.index("other")


def _colour(kind: str) -> str:
    """The CSS class of a kind: k0, k1 ..."""
    return f"k{_order(kind)}"
