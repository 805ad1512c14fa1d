"""The screen of a fleet: verdict, problems and their nodes, silent nodes. Uses folded node sets, never lists of names."""

from __future__ import annotations

from gpuready.render.escape import escape_unprintable

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuready.model import Finding, Report
    from gpuready.model.fleet import Drift, FleetReport, FleetSuspect, Outlier
    from gpuready.render.layout import Screen

_FLEET_VERDICT_MARKS = {"ready": "ok", "clear": "ok", "not-ready": "error", "undecided": "undecided"}
_COMMAND_PARTICIPLES = {
    "check": "checked",
    "prove": "proved",
    "bench": "measured",
    "drift": "compared",
    "bisect": "paired",
}


def render_fleet_screen(report: FleetReport, screen: Screen, verbose: bool = False) -> str:
    lines = [*_format_fleet_header(report, screen), ""]
    for part in (
        _format_fleet_findings(report, screen),
        _format_drift(report, screen, verbose),
        _format_outliers(report.outliers, screen),
        _format_figures(report, screen),
        _format_suspects(report.suspects, screen),
        _format_silent_nodes(report, screen),
        _format_codes_by_node(report, screen) if verbose else [],
        _format_node_pairs(report, screen) if verbose else [],
    ):
        if part:
            lines += [*part, ""]
    lines += _format_exclude_hint(report, screen)
    for note in report.notes:
        lines += screen.format_paragraph(escape_unprintable(note), 0, 2)
    return "\n".join(lines).rstrip("\n") + "\n"


def _format_exclude_hint(report: FleetReport, screen: Screen) -> list[str]:
    """How to keep jobs away, for Slurm and Ray, where it fits on one line: a cut list would be taken for the whole."""
    if not report.exclude:
        return []
    hints = [f"keep jobs away: --exclude={escape_unprintable(report.exclude)}"]
    for key, value in report.selector.items():
        hints.append(f"keep tasks away: label_selector={{'{escape_unprintable(key)}': '{escape_unprintable(value)}'}}")
    if all(len(sentence) <= screen.width for sentence in hints):
        return hints
    count = len(expand_node_set(report.exclude))
    more = " and Ray's label selector" if report.selector else ""
    sentence = (
        f"keep jobs away from {count:,} node{'s' if count > 1 else ''}: the flag --exclude prints the whole list{more}"
    )
    return [*(hint for hint in hints if len(hint) <= screen.width), *screen.format_paragraph(sentence, 0, 2)]


def _format_nodes_sentence(text: str, nodes: str, screen: Screen, indent: int = 2, max_rows: int = 4) -> list[str]:
    """A sentence and its nodes, broken at commas, never within a name."""
    *lines, last = screen.format_paragraph(escape_unprintable(f"{text}:"), indent, 2)
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
    return (
        escape_unprintable(
            f"fleet of {_format_node_count(report)}: {report.verdict}" + (f" ({codes})" if codes else "")
        )
        + "\n"
    )


def _format_node_count(report: FleetReport) -> str:
    return f"{report.nodes:,} {'node' if report.nodes == 1 else 'nodes'}"


def _format_fleet_header(report: FleetReport, screen: Screen) -> list[str]:
    answered = len(expand_node_set(report.states.get("answered", "")))
    sentence = f"{_format_node_count(report)} {_COMMAND_PARTICIPLES.get(report.did, report.did)} through {report.transport}, {answered:,} answered"
    mark = screen.status_mark(_FLEET_VERDICT_MARKS[report.verdict])
    lines = screen.align_ends(f"{sentence}", f"{report.seconds:.1f} s")
    return [f"{mark} {screen.apply_style(report.verdict, 'bold')}", *lines]


def expand_node_set(nodes: str) -> list[str]:
    """Expand a folded node set (``n[01-02,05]``). Unreadable parts stay as they are."""
    expanded, start, depth = [], 0, 0
    for at, char in enumerate(f"{nodes},"):
        depth += (char == "[") - (char == "]")
        if char == "," and depth == 0:
            expanded += _expand_node_range(nodes[start:at])
            start = at + 1
    return [name for name in expanded if name]


def _expand_node_range(text: str) -> list[str]:
    before, bracket, rest = text.partition("[")
    inside, closed, after = rest.partition("]")
    if not bracket or not closed:
        return [text]
    tails = _expand_node_range(after) if after else [""]
    numbers = []
    for span in inside.split(","):
        first, _, last = span.partition("-")
        last = last or first
        if not (first.isdecimal() and last.isdecimal()) or int(last) - int(first) > 1_000_000:
            return [text]
        numbers += [str(n).zfill(len(first)) for n in range(int(first), int(last) + 1)]
    return [f"{before}{number}{tail}" for number in numbers for tail in tails]


def _format_fleet_findings(report: FleetReport, screen: Screen) -> list[str]:
    return [text for finding in report.findings for text in _format_fleet_finding(finding, screen)]


def _format_fleet_finding(finding: Finding, screen: Screen) -> list[str]:
    mark = screen.status_mark(finding.severity if finding.severity in ("error", "warning") else "undecided")
    first, *rest = screen.format_paragraph(escape_unprintable(f"{finding.code} {finding.says}"), 2, 2)
    lines = [f"{mark} {first[2:]}", *rest]
    for step in finding.fix:
        words = f"{step.does}: {' '.join(step.run)}" if step.run else step.does
        lines += screen.format_paragraph(escape_unprintable(f"fix: {words}"), 4, 2)
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


def _format_outliers(outliers: Sequence[Outlier], screen: Screen) -> list[str]:
    lines = []
    for one in outliers:
        where = one.node + (f" GPU {one.gpu}" if one.gpu is not None else "")
        sure = "" if one.confirmed else ", not sure yet"
        sentence = f"{where}: {one.figure} {one.value:,.4g}, {one.share:+.0%} of the usual {one.usual:,.4g} ({one.tries} tries{sure})"
        lines += screen.format_paragraph(escape_unprintable(sentence), 2, 2)
    return lines


def _format_figures(report: FleetReport, screen: Screen) -> list[str]:
    """Median, lowest and highest of each figure."""
    lines = []
    for figure, table in report.figures.items():
        values = sorted(value for row in table.values() for value in row)
        if values:
            sentence = f"{figure}: {values[len(values) // 2]:,.4g} in the middle, {values[0]:,.4g} to {values[-1]:,.4g}"
            lines += screen.format_paragraph(escape_unprintable(f"{sentence}, {len(table):,} nodes"), 2, 2)
    return lines


def _format_suspects(suspects: Sequence[FleetSuspect], screen: Screen) -> list[str]:
    lines = []
    for one in suspects:
        sure = "bad" if one.confirmed else "suspected"
        names = (" and " if one.kind in ("link", "switch") else ", ").join(one.names)
        what = f"GPU {one.gpu} of" if one.gpu is not None else one.kind
        summary_text = f"{what} {names}: {sure}, {one.failed} pairs failed and {one.passed} passed"
        mark = screen.status_mark("error" if one.confirmed else "warning")
        first, *rest = screen.format_paragraph(escape_unprintable(summary_text), 2, 2)
        lines += [f"{mark} {first[2:]}", *rest]
        for sentence in one.evidence[:4]:
            lines += screen.format_paragraph(escape_unprintable(sentence), 4, 2)
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


def _format_codes_by_node(report: FleetReport, screen: Screen) -> list[str]:
    return [
        text for code, nodes in report.codes.items() for text in _format_nodes_sentence(f"{code} on", nodes, screen)
    ]


def _format_node_pairs(report: FleetReport, screen: Screen) -> list[str]:
    lines = []
    for one in report.pairs:
        rate = f", {one.rate / 1e6:,.0f} MB/s" if one.rate else ""
        sentence = f"round {one.round}: {one.first} and {one.second} {one.outcome}{rate}" + (
            f": {one.why}" if one.why else ""
        )
        lines += screen.format_paragraph(escape_unprintable(sentence), 2, 2)
    return lines


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
    if report.selector:  # label_selector={"ray.io/node-id": "!in(...)"} of a task or an actor
        return "".join(
            f"{escape_unprintable(key)}={escape_unprintable(value)}\n" for key, value in report.selector.items()
        )
    return f"{escape_unprintable(report.exclude)}\n" if report.exclude else ""


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
        return escape_unprintable(
            f"gpuready: healthy as far as can be seen; undecided: {undecided[0].code} {undecided[0].says}"
        )[:250] + "\n", 0
    return "gpuready: healthy\n", 0
