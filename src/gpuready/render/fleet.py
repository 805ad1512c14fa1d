"""The screen of a fleet: verdict, problems and their nodes, silent nodes. Uses folded node sets, never lists of names."""

from __future__ import annotations

from gpuready.model.node_names import expand_node_set
from gpuready.render.check_report import VERDICT_ROLES
from gpuready.render.escape import escape_unprintable
from gpuready.render.layout import join_sections

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuready.model import Finding, Report
    from gpuready.model.fleet import Drift, FleetReport, FleetSuspect, NodePair, Outlier
    from gpuready.render.layout import Screen

_COMMAND_PARTICIPLES = {
    "check": "checked",
    "prove": "proved",
    "bench": "measured",
    "drift": "compared",
    "bisect": "paired",
}


def render_fleet_screen(report: FleetReport, screen: Screen, verbose: bool = False) -> str:
    sections = [
        _format_fleet_header(report, screen),
        [text for finding in report.findings for text in _format_fleet_finding(finding, screen)],
        _format_drift(report, screen, verbose),
        screen.format_paragraphs(map(_describe_outlier, report.outliers), 2, 2),
        screen.format_paragraphs(_describe_figures(report), 2, 2),
        _format_suspects(report.suspects, screen),
        _format_silent_nodes(report, screen),
    ]
    if verbose:
        codes = report.codes.items()
        sections.append([line for c, nodes in codes for line in _format_nodes_sentence(f"{c} on", nodes, screen)])
        sections.append(screen.format_paragraphs(map(_describe_node_pair, report.pairs), 2, 2))
    sections.append([*_format_exclude_hint(report, screen), *screen.format_paragraphs(report.notes, 0, 2)])
    return join_sections(sections)


def _format_exclude_hint(report: FleetReport, screen: Screen) -> list[str]:
    """How to keep jobs away, for Slurm and Ray, where it fits on one line: a cut list would be taken for the whole."""
    if not report.exclude:
        return []
    hints = [f"keep jobs away: --exclude={report.exclude}"]
    hints += [f"keep tasks away: label_selector={{'{key}': '{value}'}}" for key, value in report.selector.items()]
    hints = [escape_unprintable(hint) for hint in hints]
    if all(len(hint) <= screen.width for hint in hints):
        return hints
    count = len(expand_reported_nodes(report.exclude))
    more = " and Ray's label selector" if report.selector else ""
    nodes = f"{count:,} node{'s' if count > 1 else ''}"
    sentence = f"keep jobs away from {nodes}: the flag --exclude prints the whole list{more}"
    return [*(hint for hint in hints if len(hint) <= screen.width), *screen.format_paragraph(sentence, 0, 2)]


def _format_nodes_sentence(text: str, nodes: str, screen: Screen, indent: int = 2, max_rows: int = 4) -> list[str]:
    """A sentence and its nodes, broken at commas, never within a name."""
    *lines, last = screen.format_paragraph(f"{text}:", indent, 2)
    width, pieces = screen.width - indent - 2, escape_unprintable(nodes).split(",")
    rows = [f"{last} "]
    for at, piece in enumerate(pieces):
        word = piece + ("," if at < len(pieces) - 1 else "")
        if len(rows[-1]) + len(word) <= screen.width:
            rows[-1] += word
        elif len(rows) > max_rows:
            rows[-1] = f"{' ' * (indent + 2)}and more; the JSON has them all"
            break
        else:
            rows.append(" " * (indent + 2) + screen.truncate_text(word, width))
    return [*lines, *(row.rstrip() for row in rows)]


def format_fleet_line(report: FleetReport) -> str:
    """Node count, verdict and error codes in one line."""
    codes = " ".join(dict.fromkeys(f.code for f in report.findings if f.severity == "error"))
    behind = f" ({codes})" if codes else ""
    return escape_unprintable(f"fleet of {_format_node_count(report)}: {report.verdict}{behind}") + "\n"


def _format_node_count(report: FleetReport) -> str:
    return f"{report.nodes:,} {'node' if report.nodes == 1 else 'nodes'}"


def _format_fleet_header(report: FleetReport, screen: Screen) -> list[str]:
    answered = len(expand_reported_nodes(report.states.get("answered", "")))
    done = f"{_COMMAND_PARTICIPLES.get(report.did, report.did)} through {report.transport}"
    sentence = f"{_format_node_count(report)} {done}, {answered:,} answered"
    mark = screen.status_mark(VERDICT_ROLES[report.verdict])
    lines = screen.align_ends(sentence, f"{report.seconds:.1f} s")
    return [f"{mark} {screen.apply_style(report.verdict, 'bold')}", *lines]


def expand_reported_nodes(nodes: str) -> tuple[str, ...]:
    """The names of a folded node set; one that cannot be read stays as it is."""
    try:
        return expand_node_set(nodes)
    except ValueError:
        return (nodes,)


def _format_fleet_finding(finding: Finding, screen: Screen) -> list[str]:
    kind = finding.severity if finding.severity in ("error", "warning") else "undecided"
    lines = screen.mark_paragraph(kind, f"{finding.code} {finding.says}")
    for step in finding.fix:
        words = f"{step.does}: {' '.join(step.run)}" if step.run else step.does
        lines += screen.format_paragraph(f"fix: {words}", 4, 2)
    return lines


def _format_drift(report: FleetReport, screen: Screen, verbose: bool) -> list[str]:
    rows = report.drift if verbose or report.did == "drift" else report.drift[:10]
    lines = [text for one in rows for text in _format_drift_groups(one, screen)]
    more = len(report.drift) - len(rows)
    return [*lines, *([f"  and {more} more differences: -v shows them"] if more else [])]


def _format_drift_groups(one: Drift, screen: Screen) -> Iterator[str]:
    """``3 of 1,024 nodes differ: driver.version 550.54.15 instead of 580.95.05: n[0017,0412,0998]``"""
    where = f" of {one.stratum}" if one.stratum and one.stratum != "all" else ""
    for group in one.groups:
        word = "differ" if group.count != 1 else "differs"
        split = "are the other part" if one.split else word
        sentence = f"{group.count:,} of {one.of:,} nodes{where} {split}: {one.key} {group.value} instead of {one.want}"
        yield from _format_nodes_sentence(sentence, group.nodes, screen)


def _describe_outlier(one: Outlier) -> str:
    where = one.node + (f" GPU {one.gpu}" if one.gpu is not None else "")
    sure = "" if one.confirmed else ", not sure yet"
    value = f"{one.figure} {one.value:,.4g}, {one.share:+.0%} of the usual {one.usual:,.4g}"
    return f"{where}: {value} ({one.tries} tries{sure})"


def _describe_figures(report: FleetReport) -> Iterator[str]:
    """Median, lowest and highest of each figure."""
    for figure, table in report.figures.items():
        values = sorted(value for row in table.values() for value in row)
        if values:
            middle, spread = f"{values[len(values) // 2]:,.4g}", f"{values[0]:,.4g} to {values[-1]:,.4g}"
            yield f"{figure}: {middle} in the middle, {spread}, {len(table):,} nodes"


def _format_suspects(suspects: Sequence[FleetSuspect], screen: Screen) -> list[str]:
    lines = []
    for one in suspects:
        sure = "bad" if one.confirmed else "suspected"
        names = (" and " if one.kind in ("link", "switch") else ", ").join(one.names)
        what = f"GPU {one.gpu} of" if one.gpu is not None else one.kind
        counts = f"{one.failed} pairs failed and {one.passed} passed"
        lines += screen.mark_paragraph("error" if one.confirmed else "warning", f"{what} {names}: {sure}, {counts}")
        lines += screen.format_paragraphs(one.evidence[:4], 4, 2)
    return lines


def _format_silent_nodes(report: FleetReport, screen: Screen) -> list[str]:
    lines: list[str] = []
    reported_kinds: set[str] = set()
    for reason, nodes in report.reasons.items():
        kind, _, why = reason.partition(": ")
        reported_kinds.add(kind)
        lines += _format_nodes_sentence(f"{kind} ({why})", nodes, screen)
    for kind, nodes in report.states.items():
        if kind != "answered" and kind not in reported_kinds:
            lines += _format_nodes_sentence(kind, nodes, screen)
    return lines


def _describe_node_pair(one: NodePair) -> str:
    rate = f", {one.rate / 1e6:,.0f} MB/s" if one.rate else ""
    why = f": {one.why}" if one.why else ""
    return f"round {one.round}: {one.first} and {one.second} {one.outcome}{rate}{why}"


def render_exclude_list(report: FleetReport, as_json: bool = False) -> str:
    """The nodes to keep jobs away from: for Slurm's --exclude, or as a label selector for Ray."""
    if as_json:
        from gpuready.render import json_document

        fields = {
            "exclude": report.exclude,
            "selector": report.selector,
            "blames": report.blames,
            "verdict": report.verdict,
            "exit": report.exit,
        }
        return json_document.format_json_document(fields)
    # label_selector={"ray.io/node-id": "!in(...)"} of a task or an actor
    lines = [f"{key}={value}" for key, value in report.selector.items()]
    if not lines and report.exclude:
        lines = [report.exclude]
    return "".join(f"{escape_unprintable(line)}\n" for line in lines)


def drain_reason(reports: Sequence[Report]) -> tuple[str, int]:
    """One line for Slurm's drain reason, and the exit code. Undecided rules are mentioned but do not drain a node."""
    errors = [f for one in reports for f in one.findings if one.verdict == "not-ready" and f.severity == "error"]
    serious = errors or [f for one in reports for f in one.findings if one.verdict == "not-ready"]
    if serious:
        first, codes = serious[0], " ".join(dict.fromkeys(f.code for f in serious[1:]))
        sentence = f"gpuready: {first.code} {first.says}" + (f" (also {codes})" if codes else "")
        return escape_unprintable(sentence)[:250] + "\n", 1
    undecided = [u for one in reports if one.verdict == "undecided" for u in one.undecided]
    if undecided:
        rule = f"{undecided[0].code} {undecided[0].says}"
        sentence = f"gpuready: healthy as far as can be seen; undecided: {rule}"
        return escape_unprintable(sentence)[:250] + "\n", 0
    return "gpuready: healthy\n", 0
