"""Charts: measured against expected values, and the memory of a step over its phases."""

from typing import Any

from gpuready.model.bench import BenchMeasure, BenchResult
from gpuready.model.fit import FitResult, GpuCandidate, Proposal, TimePrediction, format_time_span
from gpuready.render import bench as benching
from gpuready.render import fit as fitting
from gpuready.render.fit_time import BOUND_WORDS, describe_place_time, describe_proposal_time, describe_time
from gpuready.render.html.check_view import finding_view, mark_view
from gpuready.render.units import FIT_VERDICT_MARKS, format_gib, format_gib_range

MOST_RATIO = 1.5
"""Of what was expected; a longer bar would only show that the catalogue is wrong."""
LETTER_SHARE = 1.0
"""Of the width of a bar on a desktop: a part that is narrower than its name has none."""


# -- bench ------------------------------------------------------------------------------------------------------


def build_bench_charts(result: BenchResult) -> dict[str, Any]:
    """One chart per device, and the measures without a number."""
    devices = [
        _device_chart(device, benching.device_gpu_name(result, device), rows)
        for device, rows in benching.group_by_device(result).items()
    ]
    findings = [finding_view(benching.trim_bench_finding(one)) for one in result.report.findings]
    return {"devices": devices, "silent": benching.group_unmeasured(result), "findings": findings, "found": result}


def _device_chart(device: str, name: str, rows: list[BenchMeasure]) -> dict[str, Any]:
    bars = [_measure_bar(one) for one in rows]
    return {"name": device, "says": name, "bars": bars, "chart": any(bar["ratio"] for bar in bars)}


def _measure_bar(one: BenchMeasure) -> dict[str, Any]:
    known = one.expected is not None and one.ratio is not None
    kind = benching.VERDICT_MARKS.get(one.verdict, "undecided")
    return {
        "one": one,
        "ratio": min(max(one.ratio, 0.0), MOST_RATIO) if one.ratio is not None else 0.0,
        "value": benching.format_amount(one.value, one.unit) or "nothing",
        "expected": benching.format_amount(one.expected, one.unit, one.value) if known else "",
        "share": f"{one.ratio:.0%}" if known else "",
        "verdict": one.verdict.replace("-", " "),
        "mark": mark_view(kind) if one.verdict != "measured" else None,
        "kind": kind,
        "passes": [benching.format_amount(each, one.unit) for each in one.passes],
        "bounds": [benching.format_amount(each, one.unit) for each in one.band],
    }


# -- memory -----------------------------------------------------------------------------------------------------

MEMORY_KINDS = (
    "parameters", "gradients", "optimizer", "activations", "loss", "adapters", "workspaces", "cache", "quantisation", "other",
)  # fmt: skip
"""Kinds with their own colour, in stack order."""
CUDA_OVERHEAD = "CUDA and its libraries"
FRAGMENTATION = "fragmentation"


def build_memory_chart(result: FitResult) -> dict[str, Any]:
    """Stacked bars, one per phase, against the memory of the GPUs."""
    stacks = {name: dict(parts) for name, parts in result.stacks.items() if parts}
    if not stacks and result.parts:
        stacks = {result.peak_at[0] or "at the peak": dict(result.parts)}
    return {
        "found": result,
        "words": _job_setup_text(result),
        "verdict": mark_view(FIT_VERDICT_MARKS[result.verdict]),
        "because": fitting.explain_fit_verdict(result),
        "places": [_place_view(place, result) for place in result.places],
        "time": None if result.time is None else _time_text(result.time),
        "proposals": [_proposal_view(one) for one in result.proposals],
        "chart": _stacked_chart(result, stacks) if result.minimum is not None and stacks else None,
    }


def _job_setup_text(result: FitResult) -> str:
    try:
        return ", ".join(fitting.describe_job_setup(dict(result.job), result.said))
    except (KeyError, TypeError):  # written by another version
        return ""


def _proposal_view(one: Proposal) -> dict[str, Any]:
    needs = format_gib(one.minimum + one.peak_device - one.peak_reserved)
    costs = one.costs + describe_proposal_time(one)
    return {"says": one.says, "costs": costs, "needs": needs, "settings": one.settings, "run": one.run}


def _time_text(time: TimePrediction) -> str:
    whole = f" The whole run: {format_time_span(time.run_seconds)}." if time.run_seconds is not None else ""
    return f"Time: {describe_time(time)}. Bound by {BOUND_WORDS.get(time.bound_by, time.bound_by)}.{whole}"


def _place_view(place: GpuCandidate, result: FitResult) -> dict[str, Any]:
    count = f"{len(place.indexes)} x " if len(place.indexes) > 1 else ""
    verdict = place.verdict if result.minimum is not None else "undecided"
    return {
        "mark": mark_view(FIT_VERDICT_MARKS.get(verdict, "undecided")),
        "name": f"{count}{place.name}",
        "memory": format_gib_range(*place.memory) if place.memory else "",
        "verdict": f"{verdict}{fitting.describe_spare_memory(place)}",
        "time": describe_place_time(place),
    }


def _stacked_chart(result: FitResult, stacks: dict[str, dict[str, int]]) -> dict[str, Any]:
    extra = result.overhead[1] if len(result.overhead) == 2 else 0
    needed = (result.minimum or 0) + extra
    capacities = {place.name: place.available_memory[1] for place in result.places if len(place.memory) == 2}
    totals = [sum(parts.values()) + extra for parts in stacks.values()]
    whole = max([needed, *totals, *capacities.values()]) or 1
    peak = max(stacks, key=lambda name: sum(stacks[name].values()))
    fragmented = max(needed - extra - sum(stacks[peak].values()), 0)
    rows = [_stack_row(name, parts, extra, fragmented if name == peak else 0, whole) for name, parts in stacks.items()]
    kinds = list(dict.fromkeys(one["kind"] for row in rows for one in row["segments"]))
    ordered = sorted(capacities.items(), key=lambda item: item[1])
    return {
        "rows": rows,
        "legend": [(_stack_colour_class(kind), kind) for kind in sorted(kinds, key=_stack_order)],
        "marks": [(100 * capacity / whole, capacity < needed) for _, capacity in ordered],
        "rooms": ", ".join(f"{name} {format_gib(capacity)}" for name, capacity in ordered),
        "needed": format_gib(needed),
        "moment": fitting.describe_peak_moment(result),
    }


def _stack_row(name: str, parts: dict[str, int], extra: int, fragmented: int, whole: int) -> dict[str, Any]:
    """The parts of one phase; ``x`` and ``w`` are percent of the bar."""
    pieces = sorted(((kind, size) for kind, size in parts.items() if size > 0), key=lambda one: _stack_order(one[0]))
    pieces += [(FRAGMENTATION, fragmented)] if fragmented else []
    pieces += [(CUDA_OVERHEAD, extra)] if extra else []
    x, segments = 0.0, []
    for kind, size in pieces:
        width = 100 * size / whole
        segment = {"kind": kind, "colour": _stack_colour_class(kind), "x": x, "w": width}
        segments.append(segment | {"size": format_gib(size), "label": len(kind) * LETTER_SHARE < width})
        x += width
    return {"name": name, "segments": segments, "total": format_gib(sum(size for _, size in pieces))}


def _stack_order(kind: str) -> int:
    every = (*MEMORY_KINDS, FRAGMENTATION, CUDA_OVERHEAD)
    return every.index(kind) if kind in every else MEMORY_KINDS.index("other")


def _stack_colour_class(kind: str) -> str:
    """The CSS class of a kind: k0, k1 ..."""
    return f"k{_stack_order(kind)}"
