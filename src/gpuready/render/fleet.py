"""The screen of a fleet: verdict, problems and their nodes, silent nodes. Uses folded node sets, never lists of names."""

from __future__ import annotations

from gpuready.render.escape import visible

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpuready.fleeted import Drift, FleetReport, Outlier, Suspect
    from gpuready.model import Finding, Report
    from gpuready.render.layout import Screen

_MARK = {"ready": "ok", "clear": "ok", "not-ready": "error", "undecided": "undecided"}
_DID = {"check": "checked", "prove": "proved", "bench": "measured", "drift": "compared", "bisect": "paired"}


def page(report: FleetReport, screen: Screen, verbose: bool = False) -> str:
    lines = [*_head(report, screen), ""]
    for part in (
        _findings(report, screen),
        _drift(report, screen, verbose),
        _outliers(report.outliers, screen),
        _figures(report, screen),
        _suspects(report.suspects, screen),
        _silent(report, screen),
        _codes(report, screen) if verbose else [],
        _pairs(report, screen) if verbose else [],
    ):
        if part:
            lines += [*part, ""]
    lines += _avoid(report, screen)
    for note in report.notes:
        lines += screen.paragraph(visible(note), 0, 2)
    return "\n".join(lines).rstrip("\n") + "\n"


def _avoid(report: FleetReport, screen: Screen) -> list[str]:
    """How to keep jobs away, for Slurm and Ray, where it fits on one line: a cut list would be taken for the whole."""
    if not report.exclude:
        return []
    ways = [f"keep jobs away: --exclude={visible(report.exclude)}"]
    for key, value in report.selector.items():
        ways.append(f"keep tasks away: label_selector={{'{visible(key)}': '{visible(value)}'}}")
    if all(len(said) <= screen.width for said in ways):
        return ways
    count = len(names(report.exclude))
    more = " and Ray's label selector" if report.selector else ""
    said = f"keep jobs away from {count:,} node{'s' if count > 1 else ''}: the flag --exclude prints the whole list{more}"
    return [*(way for way in ways if len(way) <= screen.width), *screen.paragraph(said, 0, 2)]


def _where(text: str, nodes: str, screen: Screen, indent: int = 2, most: int = 4) -> list[str]:
    """A sentence and its nodes, broken at commas, never within a name."""
    *lines, last = screen.paragraph(visible(f"{text}:"), indent, 2)
    room, pieces = screen.width - indent - 2, visible(nodes).split(",")
    rows = [f"{last} "]
    for at, piece in enumerate(pieces):
        word = piece + ("," if at < len(pieces) - 1 else "")
        if len(rows[-1]) + len(word) <= screen.width:
            rows[-1] += word
        elif len(rows) > most:
            rows[-1] = f"{' ' * (indent + 2)}and more; the JSON has them all"
            break
        else:
            rows.append(" " * (indent + 2) + screen.cut(word, room))
    return [*lines, *(row.rstrip() for row in rows)]


def line(report: FleetReport) -> str:
    """Node count, verdict and error codes in one line."""
    codes = " ".join(dict.fromkeys(f.code for f in report.findings if f.severity == "error"))
    return visible(f"fleet of {_nodes(report)}: {report.verdict}" + (f" ({codes})" if codes else "")) + "\n"


def _nodes(report: FleetReport) -> str:
    return f"{report.nodes:,} {'node' if report.nodes == 1 else 'nodes'}"


def _head(report: FleetReport, screen: Screen) -> list[str]:
    answered = len(names(report.states.get("answered", "")))
    said = f"{_nodes(report)} {_DID.get(report.did, report.did)} through {report.transport}, {answered:,} answered"
    mark = screen.mark(_MARK[report.verdict])
    lines = screen.ends(f"{said}", f"{report.seconds:.1f} s")
    return [f"{mark} {screen.paint(report.verdict, 'bold')}", *lines]


def names(nodes: str) -> list[str]:
    """Expand a folded node set (``n[01-02,05]``). Unreadable parts stay as they are."""
    found, start, depth = [], 0, 0
    for at, char in enumerate(f"{nodes},"):
        depth += (char == "[") - (char == "]")
        if char == "," and depth == 0:
            found += _one(nodes[start:at])
            start = at + 1
    return [name for name in found if name]


def _one(text: str) -> list[str]:
    before, bracket, rest = text.partition("[")
    inside, closed, after = rest.partition("]")
    if not bracket or not closed:
        return [text]
    tails = _one(after) if after else [""]
    numbers = []
    for span in inside.split(","):
        first, _, last = span.partition("-")
        last = last or first
        if not (first.isdecimal() and last.isdecimal()) or int(last) - int(first) > 1_000_000:
            return [text]
        numbers += [str(n).zfill(len(first)) for n in range(int(first), int(last) + 1)]
    return [f"{before}{number}{tail}" for number in numbers for tail in tails]


def _findings(report: FleetReport, screen: Screen) -> list[str]:
    return [text for finding in report.findings for text in _finding(finding, screen)]


def _finding(finding: Finding, screen: Screen) -> list[str]:
    mark = screen.mark(finding.severity if finding.severity in ("error", "warning") else "undecided")
    first, *rest = screen.paragraph(visible(f"{finding.code} {finding.says}"), 2, 2)
    lines = [f"{mark} {first[2:]}", *rest]
    for step in finding.fix:
        words = f"{step.does}: {' '.join(step.run)}" if step.run else step.does
        lines += screen.paragraph(visible(f"fix: {words}"), 4, 2)
    return lines


def _drift(report: FleetReport, screen: Screen, verbose: bool) -> list[str]:
    rows = report.drift if verbose or report.did == "drift" else report.drift[:10]
    lines = [text for one in rows for text in _differs(one, screen)]
    more = len(report.drift) - len(rows)
    return [*lines, *([f"  and {more} more differences: -v shows them"] if more else [])]


def _differs(one: Drift, screen: Screen) -> Iterator[str]:
    """``3 of 1,024 nodes differ: driver.version 550.54.15 instead of 580.95.05: n[0017,0412,0998]``"""
    where = f" of {one.stratum}" if one.stratum and one.stratum != "all" else ""
    for group in one.groups:
        word = "differ" if group.count != 1 else "differs"
        split = "are the other part" if one.split else word
        said = f"{group.count:,} of {one.of:,} nodes{where} {split}: {one.key} {group.value} instead of {one.want}"
        yield from _where(said, group.nodes, screen)


def _outliers(outliers: Sequence[Outlier], screen: Screen) -> list[str]:
    lines = []
    for one in outliers:
        where = one.node + (f" GPU {one.gpu}" if one.gpu is not None else "")
        sure = "" if one.confirmed else ", not sure yet"
        said = f"{where}: {one.figure} {one.value:,.4g}, {one.share:+.0%} of the usual {one.usual:,.4g} ({one.tries} tries{sure})"
        lines += screen.paragraph(visible(said), 2, 2)
    return lines


def _figures(report: FleetReport, screen: Screen) -> list[str]:
    """Median, lowest and highest of each figure."""
    lines = []
    for figure, table in report.figures.items():
        values = sorted(value for row in table.values() for value in row)
        if values:
            said = f"{figure}: {values[len(values) // 2]:,.4g} in the middle, {values[0]:,.4g} to {values[-1]:,.4g}"
            lines += screen.paragraph(visible(f"{said}, {len(table):,} nodes"), 2, 2)
    return lines


def _suspects(suspects: Sequence[Suspect], screen: Screen) -> list[str]:
    lines = []
    for one in suspects:
        sure = "bad" if one.confirmed else "suspected"
        names = (" and " if one.kind in ("link", "switch") else ", ").join(one.names)
        what = f"GPU {one.gpu} of" if one.gpu is not None else one.kind
        said = f"{what} {names}: {sure}, {one.failed} pairs failed and {one.passed} passed"
        mark = screen.mark("error" if one.confirmed else "warning")
        first, *rest = screen.paragraph(visible(said), 2, 2)
        lines += [f"{mark} {first[2:]}", *rest]
        for sentence in one.evidence[:4]:
            lines += screen.paragraph(visible(sentence), 4, 2)
    return lines


def _silent(report: FleetReport, screen: Screen) -> list[str]:
    lines: list[str] = []
    told: set[str] = set()
    for reason, nodes in report.reasons.items():
        kind, _, why = reason.partition(": ")
        told.add(kind)
        lines += _where(f"{kind} ({why})", nodes, screen)
    for kind, nodes in report.states.items():
        if kind != "answered" and kind not in told:
            lines += _where(kind, nodes, screen)
    return lines


def _codes(report: FleetReport, screen: Screen) -> list[str]:
    return [text for code, nodes in report.codes.items() for text in _where(f"{code} on", nodes, screen)]


def _pairs(report: FleetReport, screen: Screen) -> list[str]:
    lines = []
    for one in report.pairs:
        rate = f", {one.rate / 1e6:,.0f} MB/s" if one.rate else ""
        said = f"round {one.round}: {one.first} and {one.second} {one.outcome}{rate}" + (
            f": {one.why}" if one.why else ""
        )
        lines += screen.paragraph(visible(said), 2, 2)
    return lines


def exclude(report: FleetReport, as_json: bool = False) -> str:
    """The nodes to keep jobs away from: for Slurm's --exclude, or as a label selector for Ray."""
    if as_json:
        from gpuready.render import json

        fields = {
            "exclude": report.exclude,
            "selector": report.selector,
            "blames": report.blames,
            "verdict": report.verdict,
            "exit": report.exit,
        }
        return json.document(fields)
    if report.selector:  # label_selector={"ray.io/node-id": "!in(...)"} of a task or an actor
        return "".join(f"{visible(key)}={visible(value)}\n" for key, value in report.selector.items())
    return f"{visible(report.exclude)}\n" if report.exclude else ""


def reason(reports: Sequence[Report]) -> tuple[str, int]:
    """One line for Slurm's drain reason, and the exit code. Undecided rules are mentioned but do not drain a node."""
    errors = [
        f for one in reports for f in one.findings if one.verdict == "not-ready" and f.severity == "error"
    ]
    grave = errors or [f for one in reports for f in one.findings if one.verdict == "not-ready"]
    if grave:
        first, codes = grave[0], " ".join(dict.fromkeys(f.code for f in grave[1:]))
        said = f"gpuready: {first.code} {first.says}" + (f" (also {codes})" if codes else "")
        return visible(said)[:250] + "\n", 1
    unseen = [u for one in reports if one.verdict == "undecided" for u in one.undecided]
    if unseen:
        return visible(
            f"gpuready: healthy as far as can be seen; undecided: {unseen[0].code} {unseen[0].says}"
        )[:250] + "\n", 0
    return "gpuready: healthy\n", 0
