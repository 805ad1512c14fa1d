"""The screen of ``gpuready bench``: measured value, expected value, share and verdict of each measure."""

from collections.abc import Sequence
from typing import Any

from gpuready.model import Contract, Facts, Finding
from gpuready.model.bench import NOISE_LIMIT, BenchMeasure, BenchResult, JobBench
from gpuready.model.facts import verdict_words
from gpuready.model.fit import format_time_span
from gpuready.model.visible_text import escape_unprintable
from gpuready.render import finding as findings
from gpuready.render import json_document, units
from gpuready.render.check_report import VERDICT_ROLES, NextCommands, describe_subject, format_header_rows
from gpuready.render.fit_time import BOUND_WORDS
from gpuready.render.layout import Screen, join_sections, pad_text
from gpuready.render.units import format_gib

VERDICT_MARKS = {
    "as-expected": "ok",
    "slow": "error",
    "failed": "error",
    "crashed": "error",
    "hung": "error",
    "noisy": "warning",
}
LARGE_UNIT_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""))
SMALL_UNIT_PREFIXES = ((1, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))
BAR_WIDTH = 10
NEVER_RUN_ON_GPU = ("", "cpu")
UNMEASURED_VERDICTS = ("absent", "unsupported", "skipped")
"""Verdicts without a number: listed together by reason."""


def render_bench_screen(result: BenchResult, screen: Screen, verbose: bool = False, rest: NextCommands = ()) -> str:
    sections = [[*_format_bench_verdict(result, screen), *format_header_rows(result.report, screen)]]
    for device, rows in group_by_device(result).items():
        sections.append(_format_device_section(device, device_gpu_name(result, device), rows, screen, verbose))
    sections += [_format_unmeasured(result, screen), _format_verdict_reasons(result, screen)]
    sections += [findings.format_finding(trim_bench_finding(f), screen) for f in result.report.findings]
    return join_sections([*sections, _format_bench_notes(result, screen), _format_bench_footer(result, screen, rest)])


def format_bench_line(result: BenchResult) -> str:
    """``bench: not ready (matmul-bf16 slow)``"""
    slow = [f"{m.name} {m.verdict}" for m in result.measures if VERDICT_MARKS.get(m.verdict) == "error"]
    behind = f" ({', '.join(slow[:4])})" if slow else ""
    return escape_unprintable(f"bench: {verdict_words(result.verdict)}{behind}") + "\n"


def render_measure_list(rows: Sequence[dict[str, Any]], screen: Screen) -> str:
    """All measures, marking those we have never executed ourselves."""
    cells = [(str(row["name"]), str(row["device"]), str(row["says"]) + _untested_suffix(row)) for row in rows]
    return "\n".join(text for lines in screen.format_table(cells) for text in lines) + "\n"


def _untested_suffix(row: dict[str, Any]) -> str:
    if row["device"] == "any" and row["executed"] == "cpu":
        return "; not tested on GPUs"
    return "" if row["executed"] else "; not tested"


def bench_json_fields(result: BenchResult) -> dict[str, Any]:
    """The JSON fields: verdict first, every measure, and the Report the verdict comes from."""
    result_json = result.to_json() | {"report": json_document.report_json_fields(result.report)}
    return {"kind": "bench", "verdict": result.verdict, "exit": result.exit} | result_json


def format_amount(value: float | None, unit: str, scale_of: float | None = None) -> str:
    """``782 TFLOP/s``, ``4.23 TB/s``, ``5.10 µs``; ``scale_of`` sets the scale, so that two values compare."""
    if value is None:
        return ""
    by = abs(scale_of if scale_of is not None else value)
    table = SMALL_UNIT_PREFIXES if unit == "s" else LARGE_UNIT_PREFIXES
    scale, letter = next(((s, name) for s, name in table if by >= s * 0.9995), table[-1])
    return f"{_format_scaled_number(value / scale)} {letter}{unit}"


def _format_scaled_number(number: float) -> str:
    return f"{number:.0f}" if number >= 99.95 else f"{number:.1f}" if number >= 9.995 else f"{number:.2f}"


# -- rows -------------------------------------------------------------------------------------------------------


def group_by_device(result: BenchResult) -> dict[str, list[BenchMeasure]]:
    devices: dict[str, list[BenchMeasure]] = {}
    for one in result.measures:
        if one.verdict not in UNMEASURED_VERDICTS:
            devices.setdefault(one.device, []).append(one)
    return devices


def _format_device_section(
    device: str, name: str, rows: list[BenchMeasure], screen: Screen, verbose: bool
) -> list[str]:
    lines = [screen.apply_style(device, "bold") + (f"  {escape_unprintable(name)}" if name else "")]
    for one in rows:
        lines += _format_measure_row(one, screen)
        if verbose:
            lines += _format_measure_details(one, screen)
    return lines


def device_gpu_name(result: BenchResult, device: str) -> str:
    names, index = result.hardware.get("gpu.name") or (), device.removeprefix("GPU ")
    return str(names[int(index)]) if index.isdecimal() and int(index) < len(names) else ""


def _format_measure_row(one: BenchMeasure, screen: Screen) -> list[str]:
    mark = screen.status_mark(VERDICT_MARKS.get(one.verdict, "undecided"))
    if one.verdict == "measured":
        mark = "  " if screen.ascii else " "
    name = pad_text(screen.truncate_text(one.name, 17), 18)
    value = f"{format_amount(one.value, one.unit) or 'no value':>13}"
    text = f"  {mark} {name}{value}{_format_expected_share(one, screen)}  {one.verdict.replace('-', ' ')}"
    return [screen.truncate_text(text, screen.width) if not screen.colour else text]


def _format_expected_share(one: BenchMeasure, screen: Screen) -> str:
    """``of 989   79 %  ███████▉``; blank where no figure is expected."""
    if one.expected is None or one.ratio is None or one.value is None:
        return " " * (11 + 6 + 2 + BAR_WIDTH)
    figure = format_amount(one.expected, one.unit, one.value).partition(" ")[0]
    return f" of {figure:>6} {one.ratio:>5.0%}  {pad_text(_format_ratio_bar(one.ratio, screen), BAR_WIDTH)}"


def _format_ratio_bar(ratio: float, screen: Screen) -> str:
    full = max(0, min(BAR_WIDTH, round(ratio * BAR_WIDTH)))
    return ("#" if screen.ascii else "█") * full + ("." if screen.ascii else "░") * (BAR_WIDTH - full)


def _format_measure_details(one: BenchMeasure, screen: Screen) -> list[str]:
    parts = [f"at {one.at}"] if one.at else []
    parts += ["passes " + ", ".join(format_amount(p, one.unit) for p in one.passes[:6])] if one.passes else []
    parts += [f"spread {one.spread:.1%}"] if one.spread is not None else []
    parts += [f"best {format_amount(one.best, one.unit)}"] if one.best else []
    parts += (
        [f"expected range {' to '.join(format_amount(edge, one.unit) for edge in one.band[:2])}"] if one.band else []
    )
    parts += [f"expected by {one.cite}"] if one.cite else []
    return screen.dim_paragraph("; ".join(parts), 6, 2)


# -- reasons and verdict ------------------------------------------------------------------------------------------


def _format_unmeasured(result: BenchResult, screen: Screen) -> list[str]:
    lines: list[str] = []
    for verdict, names, why in group_unmeasured(result):
        lines += screen.lead_paragraph(f"{verdict}:", f"{names}; {why}", "undecided")
    return lines


def group_unmeasured(result: BenchResult) -> list[tuple[str, str, str]]:
    """Verdict, names and reason of the measures without a number."""
    groups: dict[tuple[str, str], list[str]] = {}
    for one in result.measures:
        if one.verdict in UNMEASURED_VERDICTS:
            groups.setdefault((one.verdict, one.why), []).append(one.name)
    return [(verdict, ", ".join(dict.fromkeys(names)), why) for (verdict, why), names in groups.items()]


def _format_verdict_reasons(result: BenchResult, screen: Screen) -> list[str]:
    """Why measures are not as expected: each reason once, with its evidence."""
    groups: dict[str, list[str]] = {}
    for one in result.measures:
        if one.why and one.verdict not in UNMEASURED_VERDICTS and one.verdict != "slow":
            why, name = f"{one.verdict}: {one.why}", one.name + (f" of {one.at}" if one.device == "GPUs" else "")
            if one.verdict == "noisy":
                why = f"noisy: passes differ by more than {NOISE_LIMIT:.0%}"
                name += f" {one.spread or 0:.0%}"
            groups.setdefault(why, []).append(name)
    lines = screen.lead_paragraphs("?", (f"{why} ({', '.join(names)})" for why, names in groups.items()), "undecided")
    reasons = dict.fromkeys(r.says for m in result.measures if m.verdict != "slow" for r in m.reasons)
    return lines + screen.format_paragraphs((f"reason: {says}" for says in reasons), 2, 6)


def trim_bench_finding(finding: Finding) -> Finding:
    """A finding without the measured values, which are already shown above it."""
    return finding.replace(found=tuple(f for f in finding.found if not f.key.startswith("bench.")), needs=())


def _format_bench_notes(result: BenchResult, screen: Screen) -> list[str]:
    lines = screen.format_paragraphs((f"note: {note}" for note in result.notes), 0, 6)
    new = [
        m.name for m in result.measures if m.value is not None and m.device != "cpu" and m.executed in NEVER_RUN_ON_GPU
    ]
    if new:
        lines += screen.format_paragraph(f"not tested before on a GPU: {', '.join(dict.fromkeys(new))}", 0, 2)
    return lines


def _format_bench_verdict(result: BenchResult, screen: Screen) -> list[str]:
    counts = units.count_words(one.verdict.replace("-", " ") for one in result.measures)
    word = verdict_words(result.verdict)
    measured = Contract("torch", result.versions.get("torch") or "not installed")
    facts = result.report.facts
    named = facts if facts.host else Facts(facts, result.host)
    subject = describe_subject(result.report.replace(contract=measured, facts=named))
    right = f"{subject}, {units.format_seconds(result.seconds)}"
    return screen.format_header(f"{word}: {counts}", right, VERDICT_ROLES[result.verdict], word)


def _format_bench_footer(result: BenchResult, screen: Screen, rest: NextCommands) -> list[str]:
    rows = [("more", ("gpuready", "explain", finding.code)) for finding in result.report.findings[:1]]
    return screen.format_labelled_commands([*rows, *rest])


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
