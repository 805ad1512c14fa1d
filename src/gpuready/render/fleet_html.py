"""A fleet as one HTML file: verdict, findings and a heat map with one square per node. No script, no network."""

from __future__ import annotations

from gpuready.render.escape import visible
from gpuready.render.fleet import names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuready.fleeted import FleetReport

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;color:#1b1b1b;background:#fff}
h1{font-size:1.4em}h2{font-size:1.1em;margin-top:1.6em}code{font-family:ui-monospace,monospace}
.map{display:flex;flex-wrap:wrap;gap:2px}.map i{width:14px;height:14px;border-radius:2px;display:block}
.ok{background:#2e7d32}.differs{background:#f9a825}.bad{background:#c62828}.silent{background:#424242}.held{background:#9e9e9e}
.undecided{background:#0277bd}table{border-collapse:collapse}td,th{padding:.2em .8em .2em 0;text-align:left;vertical-align:top}
.key span{margin-right:1.2em}.key i{display:inline-block;width:12px;height:12px;margin-right:.3em;border-radius:2px}
@media(prefers-color-scheme:dark){body{color:#e8e8e8;background:#161616}.silent{background:#bdbdbd}}
"""
_KEY = {
    "ok": "like the others", "differs": "differs or is slow", "bad": "not ready, or to be avoided",
    "undecided": "undecided", "silent": "no answer", "held": "held back by the scheduler",
}  # fmt: skip


def document(report: FleetReport) -> str:
    kinds = squares(report)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width"><title>gpuready fleet</title>',
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>Fleet of {report.nodes:,} nodes: {_text(report.verdict)}</h1>",
        f"<p>{_text(report.did)} through {_text(report.transport)}, {report.seconds:.1f} s</p>",
        '<h2>Every node</h2><div class="map">',
        *(f'<i class="{kind}" title="{_text(f"{name}: {why}")}"></i>' for name, (kind, why) in kinds.items()),
        '</div><p class="key">',
        *(f'<span><i class="{kind}"></i>{says}</span>' for kind, says in _KEY.items()),
        "</p>",
        *_tables(report),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def squares(report: FleetReport) -> dict[str, tuple[str, str]]:
    """The colour class and reason of each node; the worst known state wins."""
    found: dict[str, tuple[str, str]] = {}

    def paint(rows: Mapping[str, str], kind: str, says: str) -> None:
        for word, nodes in rows.items():
            for name in names(nodes):
                found[name] = (kind, f"{says}{word}")

    silent = {k: v for k, v in report.states.items() if k in ("dead", "slow", "refused", "garbled")}
    held = {k: v for k, v in report.states.items() if k != "answered" and k not in silent}
    paint({k: v for k, v in report.states.items() if k == "answered"}, "ok", "")
    for one in report.drift:
        paint({f"{one.key} {g.value}": g.nodes for g in one.groups}, "differs", "")
    paint({f"{one.figure} {one.share:+.0%}": one.node for one in report.outliers}, "differs", "")
    paint({k: v for k, v in report.verdicts.items() if k == "undecided"}, "undecided", "")
    paint({k: v for k, v in report.verdicts.items() if k == "not-ready"}, "bad", "")
    paint(report.blames, "bad", "blamed by ")
    paint(held, "held", "")
    paint(silent, "silent", "")
    return dict(sorted(found.items()))


def _tables(report: FleetReport) -> list[str]:
    findings = [(f.severity, f.code, f.says) for f in report.findings]
    differ = [
        (f"{g.count:,} of {one.of:,}", f"{one.key} {g.value} instead of {one.want}", g.nodes)
        for one in report.drift
        for g in one.groups
    ]
    slow = [(o.node, o.figure, f"{o.value:,.4g} ({o.share:+.0%})") for o in report.outliers]
    bad = [(s.kind, " and ".join(s.names), "; ".join(s.evidence)) for s in report.suspects]
    silent = [(nodes, reason, "") for reason, nodes in report.reasons.items()]
    lines: list[str] = []
    for title, rows in (
        ("Findings", findings),
        ("Differences", differ),
        ("Slow", slow),
        ("Suspects", bad),
        ("Not heard", silent),
    ):
        if rows:
            cells = ("".join(f"<td>{_text(cell)}</td>" for cell in row) for row in rows)
            lines += [f"<h2>{title}</h2><table>", *(f"<tr>{row}</tr>" for row in cells), "</table>"]
    if report.exclude:
        lines.append(f"<h2>Keep jobs away</h2><p><code>--exclude={_text(report.exclude)}</code></p>")
    return lines


def _text(value: object) -> str:
    from html import escape

    return escape(visible(value))
