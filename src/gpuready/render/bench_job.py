"""The screen of ``gpuready bench --job``: measured and predicted, part by part."""

from __future__ import annotations

from typing import Any

from gpuready.model.bench import JobBench
from gpuready.model.fit import format_time_span
from gpuready.render.fit_sizes import format_gib
from gpuready.render.fit_time import BOUND_WORDS
from gpuready.render.layout import Screen, join_sections


def job_bench_fields(result: JobBench) -> dict[str, Any]:
    return result.to_json() | {"ratio": result.ratio, "exit": result.exit}


def format_job_bench_line(result: JobBench) -> str:
    return f"{result.job_name}: {format_time_span(result.measured['step'])} a step; {_judge(result)}\n"


def _judge(result: JobBench) -> str:
    if result.ratio is None or result.predicted is None or result.predicted.step_seconds is None:
        return "nothing to compare it with: the rates of this GPU are not known"
    expected = format_time_span(result.predicted.step_seconds)
    if result.exit:
        return f"slower than it should be: {result.ratio:.2f} times the predicted {expected}"
    return f"as fast as predicted ({expected}; {result.ratio - 1:+.0%})"


def render_job_bench(result: JobBench, screen: Screen, verbose: bool = False) -> str:
    role = "warning" if result.exit else "ok"
    header = screen.format_header(
        f"{format_time_span(result.measured['step'])} a step: {_judge(result)}", result.job_name, role, ""
    )
    parts = {} if result.predicted is None else dict(result.predicted.parts)
    rows = [("", "measured", "predicted", "")]
    for name, seconds in result.measured.items():
        wanted = (result.predicted.step_seconds if result.predicted else None) if name == "step" else parts.get(name)
        rows.append(
            (
                name,
                format_time_span(seconds),
                format_time_span(wanted) if wanted else "",
                f"{seconds / wanted - 1:+.0%}" if wanted else "",
            )
        )
    measured, wanted_bytes = result.measured_memory, result.predicted_memory
    if measured:
        rows.append(
            ("memory allocated", format_gib(measured), format_gib(wanted_bytes), f"{measured / wanted_bytes - 1:+.1%}")
        )
    lines = screen.indent_table(rows)
    bound = (
        []
        if result.predicted is None
        else screen.format_paragraph(f"bound by {BOUND_WORDS.get(result.predicted.bound_by, '')}", 2)
    )
    return join_sections(
        [header, lines, bound, screen.format_paragraph(f"{result.gpu}, torch {result.torch}, random weights", 2)]
    )
