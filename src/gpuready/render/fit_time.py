"""The time of a job on the screen of ``gpuready fit``: a step, its parts, what bounds it, and the whole run."""

from collections.abc import Sequence

from gpuready.model.fit import GpuCandidate, Proposal, TimePrediction, format_time_span
from gpuready.render.layout import Screen, pad_text

BOUND_WORDS = {
    "matmul": "matrix products",
    "memory": "the GPU's memory bandwidth",
    "launches": "the host, which launches kernels more slowly than the GPU runs them",
    "host": "the host's own work, such as loading data, which was timed on this machine",
    "communication": "communication with other GPUs",
}


def describe_time(time: TimePrediction) -> str:
    """``0.239 s a step (0.191 to 0.311), 8,574 tokens a second``"""
    low, high = (format_time_span(one) for one in time.range)
    if time.step_seconds is not None:
        tokens = f", {time.tokens_per_second:,.0f} tokens a second" if time.tokens_per_second else ""
        return f"{format_time_span(time.step_seconds)} a step ({low} to {high}){tokens}"
    if time.prefill_seconds is None:
        return f"{low} to {high} a step, by how fast the host is"
    first, later = time.prefill_seconds or 0.0, time.decode_seconds or 0.0
    return (
        f"{format_time_span(first)} to the first token, {format_time_span(later)} for each later one ({low} to {high}), "
        f"{time.tokens_per_second:,.0f} tokens a second"
    )


def format_time(time: TimePrediction | None, screen: Screen, verbose: bool) -> list[str]:
    """The time in one paragraph, and a bar for each part."""
    if time is None:
        return []
    lines = screen.format_paragraph(f"time: {describe_time(time)}")
    width = max(map(len, time.parts), default=0)
    bar_width = screen.width - width - 20
    most = max(time.parts.values(), default=0.0) or 1.0
    for name, seconds in time.parts.items():
        filled = max(round(bar_width * seconds / most), 1) if bar_width >= 8 else 0
        bar = screen.apply_style(("#" if screen.ascii else "█") * filled, "info")
        lines.append(f"  {pad_text(name, width)}  {format_time_span(seconds):>10}  {bar}".rstrip())
    reached = "" if time.mfu is None else f"; {time.mfu:.0%} of the GPU's peak (MFU)"
    lines += screen.format_paragraph(f"bound by {BOUND_WORDS.get(time.bound_by, time.bound_by)}{reached}", 2)
    if time.run_seconds is not None:
        whole = f"the whole run of {time.steps:,} steps: {format_time_span(time.run_seconds)}"
        if time.run_range is not None:
            low, high = map(format_time_span, time.run_range)
            whole = f"the whole run: {low} to {high}, by how many tokens the packed samples have (--mean-tokens N)"
        lines += screen.format_paragraph(whole, 2)
    lines += screen.format_paragraph(f"rates: {time.source}", 2) if verbose else []
    return lines + (screen.format_paragraphs((f"note: {text}" for text in time.notes), 2, 8) if verbose else [])


def describe_proposal_time(one: Proposal) -> str:
    """``; the same tokens take 1.31 times as long``"""
    if one.time_ratio is None:
        return ""
    if 0.97 <= one.time_ratio <= 1.03:
        return "; as fast as before"
    if one.time_ratio < 1:
        return f"; the same tokens take {one.time_ratio:.2f} of the time"
    return f"; the same tokens take {one.time_ratio:.2f} times as long"


def describe_place_time(place: GpuCandidate) -> str:
    """``0.31 s, 6,600 tokens/s, $12.40``"""
    if place.seconds is None:
        return ""
    cost = "" if place.usd is None else f", ${place.usd:,.2f}"
    return f"{format_time_span(place.seconds)}, {place.tokens_per_second or 0.0:,.0f} tokens/s{cost}"


def format_gpu_times(places: Sequence[GpuCandidate], screen: Screen, verbose: bool) -> list[str]:
    """GPUs that fit by time, or by cost where the user gave prices: the best first."""
    timed = [place for place in places if place.verdict == "fits" and place.seconds is not None]
    if not timed:
        return []
    priced = [place for place in timed if place.usd is not None]
    rows = sorted(priced or timed, key=lambda one: (one.usd or 0.0, one.seconds))
    title = "GPUs that fit, cheapest first" if priced else "GPUs that fit, fastest first"
    shown = rows if verbose else rows[:6]
    lines = [screen.apply_style(title, "bold")]
    lines += screen.indent_table([(place.name.removeprefix("NVIDIA "), describe_place_time(place)) for place in shown])
    return lines + (
        screen.format_paragraph(f"and {len(rows) - len(shown)} more: -v", 2) if len(rows) > len(shown) else []
    )
