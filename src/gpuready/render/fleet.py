"""The screen of a fleet: verdict, problems and their nodes, silent nodes. Uses folded node sets, never lists of names."""

from collections.abc import Iterable, Iterator, Sequence

from gpuready.model import Report
from gpuready.model.facts import verdict_words
from gpuready.model.fleet import (
    ANSWER_KINDS,
    ENVIRONMENTS,
    SILENT_STATES,
    Drift,
    FleetReport,
    FleetSuspect,
    NodeGroup,
    NodePair,
    Outlier,
)
from gpuready.model.node_names import expand_node_set, fold_node_names
from gpuready.model.visible_text import escape_unprintable
from gpuready.render import json_document, units
from gpuready.render.bench import format_amount
from gpuready.render.check_report import VERDICT_ROLES
from gpuready.render.finding import lowercase_opener
from gpuready.render.layout import Screen, join_sections
from gpuready.render.problem_list import format_list_item

NO_ANSWER, NOT_ASKED, TO_AVOID = "no answer", "not asked", "to be avoided"
MAX_NODE_ROWS = 12
"""Rows of the table of nodes without -v."""
MAX_NODE_PIECES = 8
"""Pieces of a folded node set in one cell; further ones are counted."""
TOLD_BY_NODES = ("FLT001", "FLT015")
"""Findings of a fleet that the answers of its nodes, or their silence, say already."""
_VERDICT_ORDER = ("not-ready", TO_AVOID, NO_ANSWER, "undecided", NOT_ASKED, "clear", "ready")


def render_fleet_screen(report: FleetReport, screen: Screen, verbose: bool = False) -> str:
    sections = [
        _format_fleet_header(report, screen),
        _format_fleet_findings(report, screen, verbose),
        _format_node_table(report, screen, verbose),
        _format_drift(report, screen, verbose),
        screen.format_paragraphs((_describe_outlier(one, report) for one in report.outliers), 2, 2),
        screen.format_paragraphs(_describe_figures(report), 2, 2),
        _format_suspects(report.suspects, screen),
    ]
    if verbose:
        sections.append(screen.format_paragraphs(map(_describe_node_pair, report.pairs), 2, 2))
    sections.append([*_format_exclude_hint(report, screen), *screen.format_paragraphs(report.notes, 0, 2)])
    commands = [("one of them", report.next)] if report.next else []
    return join_sections([*sections, screen.format_labelled_commands(commands)])


def _format_exclude_hint(report: FleetReport, screen: Screen) -> list[str]:
    """How to keep jobs away, for Slurm and Ray, where it fits on one line: a cut list would be taken for the whole."""
    if not report.exclude:
        return []
    if report.transport == "kubernetes":
        return ["keep jobs off these nodes", *screen.format_command(_cordon_command(report), 2)]
    hints = [f"Slurm: --exclude={report.exclude}"]
    hints += [f"Ray:   label_selector={{'{key}': '{value}'}}" for key, value in report.selector.items()]
    hints = [escape_unprintable(hint) for hint in hints]
    if all(len(hint) <= screen.width - 2 for hint in hints):
        return ["keep jobs off these nodes", *(f"  {hint}" for hint in hints)]
    count = len(expand_reported_nodes(report.exclude))
    more = " and Ray's label selector" if report.selector else ""
    nodes = f"{count:,} node{'s' if count > 1 else ''}"
    return screen.format_paragraph(f"keep jobs off {nodes}: --exclude prints the list{more}", 0, 2)


def _cordon_command(report: FleetReport) -> tuple[str, ...]:
    return ("kubectl", "cordon", *map(escape_unprintable, expand_reported_nodes(report.exclude)))


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
            rows[-1] = f"{' ' * (indent + 2)}and more: --json has all of them"
            break
        else:
            rows.append(" " * (indent + 2) + screen.truncate_text(word, width))
    return [*lines, *(row.rstrip() for row in rows)]


def format_fleet_line(report: FleetReport) -> str:
    """Node count, verdict and error codes in one line."""
    codes = " ".join(dict.fromkeys(f.code for f in report.findings if f.severity == "error"))
    behind = f" ({codes})" if codes else ""
    return escape_unprintable(f"fleet of {_format_node_count(report)}: {verdict_words(report.verdict)}{behind}") + "\n"


def _format_node_count(report: FleetReport) -> str:
    noun = "environment" if report.transport == ENVIRONMENTS else "node"
    return f"{report.nodes:,} {noun}{'' if report.nodes == 1 else 's'}"


def _format_fleet_header(report: FleetReport, screen: Screen) -> list[str]:
    word, nodes = verdict_words(report.verdict), _format_node_count(report)
    kinds = list(classify_nodes(report).values())
    bad = sum(kind in ("bad", "silent") for kind in kinds)
    says = (f"{bad:,} of {nodes} with problems" if bad else nodes) + _describe_alike(report, kinds)
    judged = f"{report.judged[0]}{' and others' if report.judged[1:] else ''} on " if report.judged else ""
    subject = f"{judged}{nodes}, {units.format_count(report.gpus, 'GPU')}"
    lines = screen.format_header(f"{word}: {says}", subject, VERDICT_ROLES[report.verdict], f"{word}:")
    answered = len(expand_reported_nodes(report.states.get("answered", "")))
    done = f"{report.did} in {report.environment or 'each environment'}"
    through = "" if report.transport == ENVIRONMENTS else f", through {report.transport}: {answered:,} answered"
    took = f"{done}{through} in {report.seconds:.1f} s"
    return [*lines, *screen.format_paragraph(took, 2, 2)]


def _describe_alike(report: FleetReport, kinds: Sequence[str]) -> str:
    """How many nodes are like the others, or like the reference."""
    if report.reference:
        like = set(expand_reported_nodes(report.states.get("answered", ""))) - set(_find_odd_nodes(report))
        return f", {len(like):,} like {escape_unprintable(report.reference)}"
    like_others = kinds.count("ok") if report.transport != ENVIRONMENTS else 0
    return f", {like_others:,} alike" if like_others > 1 else ""


# -- nodes ----------------------------------------------------------------------------------------------------


def classify_nodes(report: FleetReport) -> dict[str, str]:
    """The kind of each node; the worst known state wins."""
    kind_by_node: dict[str, str] = {}

    def mark_nodes(node_sets: Iterable[str], kind: str) -> None:
        kind_by_node.update((name, kind) for nodes in node_sets for name in expand_reported_nodes(nodes))

    states, verdicts = report.states, report.verdicts
    mark_nodes((states.get("answered", ""),), "ok")
    mark_nodes(_find_odd_nodes(report), "differs")
    mark_nodes((verdicts.get("undecided", ""),), "undecided")
    mark_nodes((verdicts.get("not-ready", ""), *report.blames.values()), "bad")
    mark_nodes((nodes for state, nodes in states.items() if state not in ("answered", *SILENT_STATES)), "held")
    mark_nodes((nodes for state, nodes in states.items() if state in SILENT_STATES), "silent")
    return dict(sorted(kind_by_node.items()))


def _find_odd_nodes(report: FleetReport) -> Iterator[str]:
    """The nodes that differ from the others, or are slower."""
    for one in report.drift:
        for group in one.groups:
            if group.count < one.of or one.against == "reference":  # else it differs by nature
                yield from expand_reported_nodes(group.nodes)
    yield from (outlier.node for outlier in report.outliers)


def group_nodes(report: FleetReport) -> list[tuple[str, tuple[str, ...], list[str]]]:
    """Verdict, problems (codes, or why there is no answer) and names of nodes that are alike, the worst first."""
    verdicts = {name: verdict for verdict, nodes in report.verdicts.items() for name in expand_reported_nodes(nodes)}
    problems: dict[str, list[str]] = {}
    for code, nodes in report.codes.items():
        for name in expand_reported_nodes(nodes):
            problems.setdefault(name, []).append(code)
    for code, nodes in report.blames.items():
        for name in expand_reported_nodes(nodes) if code not in TOLD_BY_NODES else ():
            verdicts[name] = verdicts[name] if verdicts.get(name) == "not-ready" else TO_AVOID
            problems.setdefault(name, []).append(code)
    for name, why in _list_unanswered(report):
        verdicts[name] = NO_ANSWER if why.partition(": ")[0] in ANSWER_KINDS else NOT_ASKED
        problems[name] = [why]
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for name, verdict in verdicts.items():
        groups.setdefault((verdict, tuple(problems.get(name, ()))), []).append(name)
    ordered = sorted(groups.items(), key=lambda one: (_VERDICT_ORDER.index(one[0][0]), one[0][1]))
    return [(verdict, codes, names) for (verdict, codes), names in ordered]


def _list_unanswered(report: FleetReport) -> Iterator[tuple[str, str]]:
    """The nodes that did not answer, each with its reason."""
    explained: set[str] = set()
    for reason, nodes in report.reasons.items():
        for name in expand_reported_nodes(nodes):
            explained.add(name)
            yield name, reason
    for state, nodes in report.states.items():
        if state != "answered":
            yield from ((name, state) for name in expand_reported_nodes(nodes) if name not in explained)


def _format_node_table(report: FleetReport, screen: Screen, verbose: bool) -> list[str]:
    """A row for nodes that are alike: which, verdict, and each code with its meaning."""
    groups = group_nodes(report)
    if report.transport != ENVIRONMENTS and not any(codes for _, codes, _ in groups):
        return []
    missing = [group for group in groups if group[0] in (NO_ANSWER, NOT_ASKED)]
    known = [group for group in groups if group not in missing]
    shown = groups if verbose else [group for group in groups if group in missing or group in known[:MAX_NODE_ROWS]]
    rows = [
        (_shorten_node_set(names, whole=verdict == NO_ANSWER), verdict_words(verdict), _describe_codes(codes, report))
        for verdict, codes, names in shown
    ]
    noun = "environments" if report.transport == ENVIRONMENTS else "nodes"
    left = len(groups) - len(shown)
    more = [f"  and {left} more groups of nodes: -v"] if left else []
    return [*screen.indent_table([(noun, "verdict", "problems"), *rows]), *more]


def _shorten_node_set(names: Sequence[str], whole: bool) -> str:
    """A folded set, with blanks at which a line may break."""
    pieces = fold_node_names(names).split(",")
    if len(pieces) > MAX_NODE_PIECES and not whole:
        return f"{', '.join(pieces[:3])}, ... ({len(names):,} nodes)"
    return ", ".join(pieces)


def _describe_codes(codes: Sequence[str], report: FleetReport) -> str:
    return "; ".join(f"{code} {lowercase_opener(report.meanings.get(code, ''))}".strip() for code in codes)


def expand_reported_nodes(nodes: str) -> tuple[str, ...]:
    """The names of a folded node set; one that cannot be read stays as it is."""
    try:
        return expand_node_set(nodes)
    except ValueError:
        return (nodes,)


def _format_fleet_findings(report: FleetReport, screen: Screen, verbose: bool) -> list[str]:
    """What is wrong, one numbered line each; with -v each with all of its fixes, else with the first."""
    lines: list[str] = []
    for number, finding in enumerate(report.findings, 1):
        kind = finding.severity if finding.severity in ("error", "warning") else "undecided"
        lines += format_list_item(str(number), finding.says, finding.code, screen, kind)
        for step in finding.fix if verbose else finding.fix[:1]:
            lines += screen.format_paragraph(f"fix: {step.does}", 5, 5)
            lines += screen.format_command(step.run, 10) if step.run else []
    return lines


def _format_drift(report: FleetReport, screen: Screen, verbose: bool) -> list[str]:
    ordered = sorted(report.drift, key=lambda one: not one.key.startswith("env."))  # variables are what a user changes
    whole, told = verbose or report.did == "drift", "\n".join(finding.says for finding in report.findings)
    new = [one for one in ordered if not all(_is_told(one.key, group, told) for group in one.groups)]
    rows = ordered if whole else new[:10]
    lines = [text for one in rows for text in _format_drift_groups(one, screen)]
    more = 0 if whole else len(new) - len(rows)
    return [*lines, *([f"  and {more} more difference{'s' if more > 1 else ''}: -v"] if more else [])]


def _is_told(key: str, group: NodeGroup, findings: str) -> bool:
    """Whether a finding says it already, with all of its nodes."""
    return f"{key} {group.value} instead of" in findings and group.nodes in findings


def _format_drift_groups(one: Drift, screen: Screen) -> Iterator[str]:
    """``driver.version 550.54.15 instead of 580.95.05: 3 of 1,024 nodes differ: n[0017,0412,0998]``"""
    where = f" of {one.peers}" if one.peers and one.peers != "all" else ""
    for group in one.groups:
        word = "differ" if group.count != 1 else "differs"
        split = "are another part" if one.split else word
        sentence = f"{one.key} {group.value} instead of {one.want}: {group.count:,} of {one.of:,} nodes{where} {split}"
        yield from _format_nodes_sentence(sentence, group.nodes, screen)


def _describe_outlier(one: Outlier, report: FleetReport) -> str:
    where = one.node + (f" GPU {one.gpu}" if one.gpu is not None else "")
    sure = "" if one.confirmed else ", not confirmed"
    own, usual = (format_figure(value, one.figure, report, one.usual) for value in (one.value, one.usual))
    return f"{where}: {one.figure} {own}, {one.share:+.0%} against the usual {usual} ({one.tries} tries{sure})"


def format_figure(value: float, figure: str, report: FleetReport, scale_of: float | None = None) -> str:
    unit = report.units.get(figure, "")
    return format_amount(value, unit, scale_of) if unit else f"{value:,.4g}"


def _describe_figures(report: FleetReport) -> Iterator[str]:
    """Median, lowest and highest of each figure."""
    for figure, table in report.figures.items():
        values = sorted(value for row in table.values() for value in row)
        if values:
            usual = values[len(values) // 2]
            middle, low, high = (format_figure(one, figure, report, usual) for one in (usual, values[0], values[-1]))
            yield f"{figure}: median {middle}, {low} to {high}, {len(table):,} nodes"


def _format_suspects(suspects: Sequence[FleetSuspect], screen: Screen) -> list[str]:
    lines = []
    for one in suspects:
        sure = "bad" if one.confirmed else "suspected"
        names = (" and " if one.kind == "link" else ", ").join(one.names)
        what = f"GPU {one.gpu} of" if one.gpu is not None else one.kind
        counts = f"{one.failed} pairs failed and {one.passed} passed"
        lines += screen.mark_paragraph("error" if one.confirmed else "warning", f"{what} {names}: {sure}, {counts}")
        lines += screen.format_paragraphs(one.evidence[:4], 4, 2)
    return lines


def _describe_node_pair(one: NodePair) -> str:
    rate = f", {one.rate / 1e6:,.0f} MB/s" if one.rate else ""
    why = f": {one.why}" if one.why else ""
    return f"round {one.round}: {one.first} and {one.second} {one.outcome}{rate}{why}"


def render_exclude_list(report: FleetReport, as_json: bool = False) -> str:
    """The nodes to keep jobs away from: for Slurm's --exclude, or as a label selector for Ray."""
    if as_json:
        fields = {
            "exclude": report.exclude,
            "selector": report.selector,
            "blames": report.blames,
            "verdict": report.verdict,
            "exit": report.exit,
        }
        return json_document.format_json_document(fields)
    # label_selector={"ray.io/node-id": "!in(...)"} of a task or an actor
    if report.transport == "kubernetes":
        return "".join(f"{escape_unprintable(name)}\n" for name in expand_reported_nodes(report.exclude) if name)
    lines = [f"{key}={value}" for key, value in report.selector.items()]
    if not lines and report.exclude:
        lines = [report.exclude]
    return "".join(f"{escape_unprintable(line)}\n" for line in lines)


def drain_reason(report: Report) -> tuple[str, str]:
    """One line for Slurm's drain reason, empty if no fault of the node was observed; and what could not be looked at."""
    unseen = [f"gpuready: can't tell: {rule.code} {rule.says}" for rule in report.undecided]
    if report.facts.value_if_known("gpu.count") == 0:
        unseen.append("gpuready: no GPU found here: no GPU, driver or fabric was looked at")
    if not report.findings:
        return "", "\n".join(map(escape_unprintable, unseen))
    first, codes = report.findings[0], " ".join(dict.fromkeys(f.code for f in report.findings[1:]))
    sentence = f"gpuready: {first.code} {first.says}" + (f" (also {codes})" if codes else "")
    return escape_unprintable(sentence)[:250] + "\n", "\n".join(map(escape_unprintable, unseen))
