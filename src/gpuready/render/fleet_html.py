"""A fleet as one HTML file: verdict, findings and a heat map with one square per node. No script, no network."""

from __future__ import annotations

from gpuready.render.escape import escape_unprintable
from gpuready.render.fleet import expand_node_set

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuready.model.fleet import FleetReport

_FLEET_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:70em;padding:0 1em;color:#1b1b1b;background:#fff}
h1{font-size:1.4em}h2{font-size:1.1em;margin-top:1.6em}code{font-family:ui-monospace,monospace}
.map{display:flex;flex-wrap:wrap;gap:2px}.map i{width:14px;height:14px;border-radius:2px;display:block}
.ok{background:#2e7d32}.differs{background:#f9a825}.bad{background:#c62828}.silent{background:#424242}.held{background:#9e9e9e}
.undecided{background:#0277bd}table{border-collapse:collapse}td,th{padding:.2em .8em .2em 0;text-align:left;vertical-align:top}
.key span{margin-right:1.2em}.key i{display:inline-block;width:12px;height:12px;margin-right:.3em;border-radius:2px}
@media(prefers-color-scheme:dark){body{color:#e8e8e8;background:#161616}.silent{background:#bdbdbd}}
"""
_NODE_LEGEND = {
    "ok": "like the others", "differs": "differs or is slow", "bad": "not ready, or to be avoided",
    "undecided": "undecided", "silent": "no answer", "held": "held back by the scheduler",
}  # fmt: skip


def render_fleet_html(report: FleetReport) -> str:
    kinds = classify_nodes(report)
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width"><title>gpuready fleet</title>',
        f"<style>{_FLEET_STYLE}</style></head><body>",
        f"<h1>Fleet of {report.nodes:,} nodes: {_escape_html(report.verdict)}</h1>",
        f"<p>{_escape_html(report.did)} through {_escape_html(report.transport)}, {report.seconds:.1f} s</p>",
        '<h2>Every node</h2><div class="map">',
        *(f'<i class="{kind}" title="{_escape_html(f"{name}: {why}")}"></i>' for name, (kind, why) in kinds.items()),
        '</div><p class="key">',
        *(f'<span><i class="{kind}"></i>{says}</span>' for kind, says in _NODE_LEGEND.items()),
        "</p>",
        *_fleet_html_tables(report),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def classify_nodes(report: FleetReport) -> dict[str, tuple[str, str]]:
    """The colour class and reason of each node; the worst known state wins."""
    nodes_by_name: dict[str, tuple[str, str]] = {}

    def mark_nodes(rows: Mapping[str, str], kind: str, says: str) -> None:
        for word, nodes in rows.items():
            for name in expand_node_set(nodes):
                nodes_by_name[name] = (kind, f"{says}{word}")

    silent = {k: v for k, v in report.states.items() if k in ("dead", "slow", "refused", "garbled")}
    withheld = {k: v for k, v in report.states.items() if k != "answered" and k not in silent}
    mark_nodes({k: v for k, v in report.states.items() if k == "answered"}, "ok", "")
    for one in report.drift:
        mark_nodes({f"{one.key} {g.value}": g.nodes for g in one.groups}, "differs", "")
    mark_nodes({f"{one.figure} {one.share:+.0%}": one.node for one in report.outliers}, "differs", "")
    mark_nodes({k: v for k, v in report.verdicts.items() if k == "undecided"}, "undecided", "")
    mark_nodes({k: v for k, v in report.verdicts.items() if k == "not-ready"}, "bad", "")
    mark_nodes(report.blames, "bad", "blamed by ")
    mark_nodes(withheld, "held", "")
    mark_nodes(silent, "silent", "")
    return dict(sorted(nodes_by_name.items()))


def _fleet_html_tables(report: FleetReport) -> list[str]:
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
            cells = ("".join(f"<td>{_escape_html(cell)}</td>" for cell in row) for row in rows)
            lines += [f"<h2>{title}</h2><table>", *(f"<tr>{row}</tr>" for row in cells), "</table>"]
    if report.exclude:
        lines.append(f"<h2>Keep jobs away</h2><p><code>--exclude={_escape_html(report.exclude)}</code></p>")
    return lines


def _escape_html(value: object) -> str:
    from html import escape

    return escape(escape_unprintable(value))
