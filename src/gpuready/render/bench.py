"""The screen of ``gpuready bench``: measured value, expected value, share and verdict of each measure."""

from __future__ import annotations

from gpuready.benched import STEADY
from gpuready.render import finding as findings
from gpuready.render import units
from gpuready.render.escape import visible
from gpuready.render.layout import Screen, pad

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from gpuready.benched import Benched, Measure

MARKS = {
    "as-expected": "ok",
    "slow": "error",
    "failed": "error",
    "crashed": "error",
    "hung": "error",
    "noisy": "warning",
}
SCALES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1, ""))
SMALL = ((1, ""), (1e-3, "m"), (1e-6, "µ"), (1e-9, "n"))
BAR = 10
NOT_ON_GPUS = ("", "cpu")
QUIET = ("absent", "unsupported", "skipped")
"""Verdicts without a number: listed together by reason."""


def page(found: Benched, screen: Screen, verbose: bool = False) -> str:
    sections = [_head(found, screen)]
    for device, rows in _by_device(found).items():
        sections.append(_device(device, _named(found, device), rows, screen, verbose))
    sections += [_quiet(found, screen), _why(found, screen)]
    sections += [lines for f in found.report.findings for lines in [_finding(f, screen)]]
    sections += [_notes(found, screen), _verdict(found, screen)]
    return "\n\n".join("\n".join(lines) for lines in sections if lines) + "\n"


def line(found: Benched) -> str:
    """``bench: not ready (matmul-bf16 slow)``"""
    slow = [f"{m.name} {m.verdict}" for m in found.measures if MARKS.get(m.verdict) == "error"]
    behind = f" ({', '.join(slow[:4])})" if slow else ""
    return f"bench: {found.verdict.replace('-', ' ')}{visible(behind)}\n"


def listing(rows: Sequence[dict[str, Any]], screen: Screen) -> str:
    """All measures, marking those we have never executed ourselves."""
    cells = [(str(row["name"]), str(row["device"]), str(row["says"]) + _untried(row)) for row in rows]
    return "\n".join(text for lines in screen.table(cells) for text in lines) + "\n"


def _untried(row: dict[str, Any]) -> str:
    if row["device"] == "any" and row["executed"] == "cpu":
        return "; on GPUs never executed by us"
    return "" if row["executed"] else "; never executed by us"


def fields(found: Benched) -> dict[str, Any]:
    """The JSON fields: verdict first, every measure, and the Report the verdict comes from."""
    from gpuready.render import json

    told = found.to_json() | {"report": json.report(found.report)}
    return {"kind": "bench", "verdict": found.verdict, "exit": found.exit} | told


def amount(value: float | None, unit: str, like: float | None = None) -> str:
    """``782 TFLOP/s``, ``4.23 TB/s``, ``5.10 µs``; ``scale_of`` sets the scale, so that two values compare."""
    if value is None:
        return ""
    by = abs(like if like is not None else value)
    table = SMALL if unit == "s" else SCALES
    scale, letter = next(((s, name) for s, name in table if by >= s * 0.9995), table[-1])
    return f"{_digits(value / scale)} {letter}{unit}"


def _digits(number: float) -> str:
    return f"{number:.0f}" if number >= 99.95 else f"{number:.1f}" if number >= 9.995 else f"{number:.2f}"


# -- rows -------------------------------------------------------------------------------------------------------


def _head(found: Benched, screen: Screen) -> list[str]:
    torch = found.versions.get("torch", "")
    left = "bench" + (f" on {visible(found.host)}" if found.host else "")
    right = ", ".join([*(["torch " + visible(torch)] if torch else []), "quick" if found.quick else "whole"])
    return screen.ends(left, right)


def _by_device(found: Benched) -> dict[str, list[Measure]]:
    devices: dict[str, list[Measure]] = {}
    for one in found.measures:
        if one.verdict not in QUIET:
            devices.setdefault(one.device, []).append(one)
    return devices


def _device(device: str, name: str, rows: list[Measure], screen: Screen, verbose: bool) -> list[str]:
    lines = [screen.paint(visible(device), "bold") + (f"  {visible(name)}" if name else "")]
    for one in rows:
        lines += _row(one, screen)
        if verbose:
            lines += _details(one, screen)
    return lines


def _named(found: Benched, device: str) -> str:
    names, index = found.hardware.get("gpu.name") or (), device.removeprefix("GPU ")
    return str(names[int(index)]) if index.isdecimal() and int(index) < len(names) else ""


def _row(one: Measure, screen: Screen) -> list[str]:
    mark = screen.mark(MARKS.get(one.verdict, "undecided"))
    if one.verdict == "measured":
        mark = "  " if screen.ascii else " "
    name = pad(screen.cut(visible(one.name), 17), 18)
    value = f"{amount(one.value, one.unit) or 'nothing':>13}"
    text = f"  {mark} {name}{value}{_against(one, screen)}  {one.verdict.replace('-', ' ')}"
    return [screen.cut(text, screen.width) if not screen.colour else text]


def _against(one: Measure, screen: Screen) -> str:
    """``of 989   79 %  ███████▉``; blank where no figure is expected."""
    if one.expected is None or one.ratio is None or one.value is None:
        return " " * (11 + 6 + 2 + BAR)
    figure = amount(one.expected, one.unit, one.value).partition(" ")[0]
    return f" of {figure:>6} {one.ratio:>5.0%}  {pad(_bar(one.ratio, screen), BAR)}"


def _bar(ratio: float, screen: Screen) -> str:
    full = max(0, min(BAR, round(ratio * BAR)))
    return ("#" if screen.ascii else "█") * full + ("." if screen.ascii else "░") * (BAR - full)


def _details(one: Measure, screen: Screen) -> list[str]:
    parts = [f"at {one.at}"] if one.at else []
    parts += ["passes " + ", ".join(amount(p, one.unit) for p in one.passes[:6])] if one.passes else []
    parts += [f"spread {one.spread:.1%}"] if one.spread is not None else []
    parts += [f"best turn {amount(one.best, one.unit)}"] if one.best else []
    parts += [f"band {amount(one.band[0], one.unit)} to {amount(one.band[1], one.unit)}"] if one.band else []
    parts += [f"expected by {one.cite}"] if one.cite else []
    return [screen.paint(text, "dim") for text in screen.paragraph(visible("; ".join(parts)), 6, 2)]


# -- reasons and verdict ------------------------------------------------------------------------------------------


def _quiet(found: Benched, screen: Screen) -> list[str]:
    """Measures without a number, by verdict and reason."""
    groups: dict[tuple[str, str], list[str]] = {}
    for one in found.measures:
        if one.verdict in QUIET:
            groups.setdefault((one.verdict, one.why), []).append(one.name)
    lines: list[str] = []
    for (verdict, why), names in groups.items():
        lines += screen.led(f"{verdict}:", visible(f"{', '.join(dict.fromkeys(names))}; {why}"), "undecided")
    return lines


def _why(found: Benched, screen: Screen) -> list[str]:
    """Why measures are not as expected: each reason once, with its evidence."""
    groups: dict[str, list[str]] = {}
    for one in found.measures:
        if one.why and one.verdict not in QUIET and one.verdict != "slow":
            why, name = f"{one.verdict}: {one.why}", f"{one.name}{_on(one)}"
            if one.verdict == "noisy":
                why, name = (
                    f"noisy: passes that differ by more than {STEADY:.0%}",
                    f"{name} {one.spread or 0:.0%}",
                )
            groups.setdefault(why, []).append(name)
    lines = []
    for why, names in groups.items():
        lines += screen.led("?", visible(f"{why} ({', '.join(names)})"), "undecided")
    reasons = {r.says: r for m in found.measures if m.verdict != "slow" for r in m.reasons}
    return lines + [text for says in reasons for text in screen.paragraph(f"seen: {visible(says)}", 2, 6)]


def _on(one: Measure) -> str:
    return f" of {one.at}" if one.device == "GPUs" else ""


def _finding(one: Any, screen: Screen) -> list[str]:
    """A finding without the measured values, which are already shown above it."""
    lean = one.but(found=tuple(f for f in one.found if not f.key.startswith("bench.")), needs=())
    return findings.block(lean, screen)


def _notes(found: Benched, screen: Screen) -> list[str]:
    lines = [text for note in found.notes for text in screen.paragraph(f"note: {visible(note)}", 0, 6)]
    new = [
        m.name
        for m in found.measures
        if m.value is not None and m.device != "cpu" and m.executed in NOT_ON_GPUS
    ]
    if new:
        lines += screen.paragraph(f"never executed by us before: {', '.join(dict.fromkeys(new))}", 0, 2)
    return lines


def _verdict(found: Benched, screen: Screen) -> list[str]:
    words: dict[str, int] = {}
    for one in found.measures:
        words[one.verdict] = words.get(one.verdict, 0) + 1
    counts = ", ".join(f"{count} {word.replace('-', ' ')}" for word, count in words.items())
    word = found.verdict.replace("-", " ")
    first, *rest = screen.ends(f"{word}: {counts}", units.seconds(found.seconds))
    role = {"not-ready": "error", "undecided": "undecided"}.get(found.verdict, "ok")
    lines = [screen.paint(first[: len(word)], role) + first[len(word) :], *rest]
    return lines + [f"  gpuready explain {visible(f.code)}" for f in found.report.findings[:1]]
