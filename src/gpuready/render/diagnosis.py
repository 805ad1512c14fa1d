"""The screen of a diagnosis: cause, location, decisive log lines, consequences, fix."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from gpuready.model.diagnosis import HEALTHY, Diagnosis, LogEvidence
from gpuready.model.facts import verdict_words
from gpuready.model.node_names import fold_node_names
from gpuready.model.visible_text import escape_unprintable
from gpuready.render import units
from gpuready.render.finding import format_fix_steps, format_labelled_text
from gpuready.render.layout import PLAIN_SCREEN, Screen, display_width, join_sections

MAX_EVIDENCE_LINES = 3
"""Shown without -v."""

MIN_SURE = 0.6
"""Below this confidence a cause is called a guess."""

_VERDICT_ROLES = {"cause": "error", HEALTHY: "ok", "unknown": "undecided"}


def diagnosis_json_fields(diagnosis: Diagnosis) -> Mapping[str, Any]:
    return {"verdict": diagnosis.verdict, "exit": diagnosis.exit} | diagnosis.to_json()


def format_diagnosis_line(diagnosis: Diagnosis) -> str:
    """``cuda-oom MEM001 rank 3 on gpu-07: the job needs …``"""
    named = f"{diagnosis.cause} {diagnosis.code}{_failing_rank_text(diagnosis)}"
    lead = named if diagnosis.verdict == "cause" else verdict_words(diagnosis.verdict)
    return escape_unprintable(f"{lead}: {diagnosis.says}") + "\n"


def render_diagnosis_screen(diagnosis: Diagnosis, screen: Screen = PLAIN_SCREEN, verbose: bool = False) -> str:
    """The cause with its code, where it happened and how sure that is, the decisive lines, the fix; the rest with -v."""
    known = diagnosis.verdict == "cause"
    blocks = [
        _format_diagnosis_verdict(diagnosis, screen, verbose),
        _format_log_evidence(diagnosis, screen, verbose),
        [] if known else _format_exceptions(diagnosis, screen),
        format_fix_steps(diagnosis.fix[:4], screen, always_safety=False),
        _format_consequences(diagnosis, screen) if verbose or not known else [],
        _format_alternatives(diagnosis, screen),
        format_labelled_text("opinion", f"(not gpuready's) {diagnosis.opinion}", screen) if diagnosis.opinion else [],
        screen.lead_paragraphs("note:", diagnosis.notes[:6], "dim"),
    ]
    return join_sections([*blocks, _format_diagnosis_footer(diagnosis, screen, verbose)])


def _failing_rank_text(diagnosis: Diagnosis) -> str:
    rank = f" rank {diagnosis.rank}" if diagnosis.rank is not None else ""
    return rank + (f" on {diagnosis.host}" if diagnosis.host else "")


def _format_diagnosis_verdict(diagnosis: Diagnosis, display: Screen, verbose: bool) -> list[str]:
    lead, role = verdict_words(diagnosis.verdict), _VERDICT_ROLES[diagnosis.verdict]
    if diagnosis.verdict == "cause" and diagnosis.confidence:
        lead = f"{'a guess' if diagnosis.confidence < MIN_SURE else lead} ({round(100 * diagnosis.confidence)} % sure)"
    lines = display.format_header(f"{lead}: {diagnosis.says}", diagnosis.code, role, f"{lead}:")
    where = _failing_rank_text(diagnosis).strip()
    if where and diagnosis.rank_confidence:
        where += f" ({round(100 * diagnosis.rank_confidence)} % sure)"
    rows = [("where", where)] if where else []
    rows += [("ran", diagnosis.command)] if diagnosis.verdict == "unknown" and diagnosis.command else []
    if diagnosis.frame:
        frame = diagnosis.frame
        rows.append(("in", f"{frame.get('file', '')}, line {frame.get('line')}, in {frame.get('function', '')}"))
    rows += [("so", diagnosis.so)] if diagnosis.so else []
    if diagnosis.exit_code is not None and (verbose or diagnosis.verdict != "cause"):
        rows.append(("exit", f"code {diagnosis.exit_code}"))
    if diagnosis.origin and (verbose or diagnosis.verdict != "cause"):
        rows.append(("from", diagnosis.origin))
    rows += [("name", diagnosis.cause)] if verbose and diagnosis.cause else []
    return lines + [line for label, text in rows for line in format_labelled_text(label, text, display)]


def _format_exceptions(diagnosis: Diagnosis, display: Screen) -> list[str]:
    """Without a cause: the exceptions of the log, from the one that ended the process inwards."""
    shown = {(one.source, one.line) for one in diagnosis.evidence}
    lines: list[str] = []
    for one in diagnosis.exceptions[:MAX_EVIDENCE_LINES]:
        at = f" ({one.file}, line {one.file_line})" if one.file else ""
        if not any(line == one.line for _, line in shown):
            lines += format_labelled_text(
                "" if lines else "raised", f"line {one.line}: {one.type}: {one.message}{at}", display
            )
    return lines


def _format_log_evidence(diagnosis: Diagnosis, display: Screen, verbose: bool) -> list[str]:
    """The decisive lines with their numbers; the first one with its neighbours."""
    lines: list[str] = []
    several = len(diagnosis.logs) > 1
    shown = diagnosis.evidence if verbose else diagnosis.evidence[:MAX_EVIDENCE_LINES]
    for i, one in enumerate(shown):
        if several and one.source and (i == 0 or one.source != diagnosis.evidence[i - 1].source):
            lines.append("  " + display.apply_style(display.truncate_text(one.source, display.width - 2), "dim"))
        others = {other.line for other in shown[1:] if other.source == one.source}
        lines += _format_log_excerpt(one, display, context=i == 0, others=others)
    return lines


def _format_log_excerpt(one: LogEvidence, display: Screen, context: bool, others: Collection[int]) -> list[str]:
    """A decisive line; with ``context`` its neighbours too, as far as ``others``, which are shown themselves."""
    width, start = display.width - 9, one.line - len(one.before)
    words = display.wrap_text(one.text, width)
    lines = [_format_numbered_line(None if i else one.line, text, display, True) for i, text in enumerate(words[:5])]
    if len(words) > 5 and display_width(words[4]) < width:
        lines[-1] += display.ellipsis
    if not context:
        return lines
    last = min((number for number in others if number > one.line), default=one.line + len(one.after) + 1)
    after = one.after[: last - one.line - 1]
    neighbours = [*enumerate(one.before, start), *enumerate(after, one.line + 1)]
    around = [_format_numbered_line(n, display.truncate_text(text, width), display, False) for n, text in neighbours]
    return [*around[: len(one.before)], *lines, *around[len(one.before) :]]


def _format_numbered_line(number: int | None, text: str, display: Screen, decisive: bool) -> str:
    shown = display.apply_style(f"{number or '':>7}", "dim")
    mark = ">" if decisive and number else " "
    return f"{shown}{mark} {display.apply_style(text, 'bold' if decisive else 'dim')}"


def _format_consequences(diagnosis: Diagnosis, display: Screen) -> list[str]:
    """What only followed from the failure, or where no cause is known, all that there is."""
    lines: list[str] = []
    for one in diagnosis.consequences:
        ranks = f", ranks {_format_rank_ranges(one.ranks)}" if one.ranks else ""
        text = f"{one.means} ({units.format_count(one.count, 'line')} from line {one.line}{ranks})"
        lines += format_labelled_text("" if lines else "then", text, display)
    return lines


def _format_rank_ranges(ranks: Sequence[int]) -> str:
    """``0-3, 5``"""
    shown = fold_node_names(map(str, ranks)).strip("[]").split(",")
    return ", ".join(shown[:8]) + (" and more" if len(shown) > 8 else "")


def _format_alternatives(diagnosis: Diagnosis, display: Screen) -> list[str]:
    lines: list[str] = []
    for other in diagnosis.alternatives[:2]:
        at = f" (line {other.evidence[0].line})" if other.evidence else ""
        code = f" [{other.code}]" if other.code else ""
        lines += format_labelled_text("" if lines else "maybe", f"{other.says}{code}{at}", display)
        lines += format_labelled_text("", f"to find out: {other.decide}", display) if other.decide else []
    return lines


def _format_diagnosis_footer(diagnosis: Diagnosis, display: Screen, verbose: bool) -> list[str]:
    total = sum(log.lines for log in diagnosis.logs)
    name = diagnosis.logs[0].name if len(diagnosis.logs) == 1 else units.format_count(len(diagnosis.logs), "log")
    left = f"read {units.format_count(total, 'line')} of {name}"
    more = sum(one.count for one in diagnosis.consequences) if diagnosis.verdict == "cause" and not verbose else 0
    left += f"; {units.format_count(more, 'line')} that followed from it: -v" if more else ""
    lines = display.format_paragraph(left, 0, 2)
    if diagnosis.code:
        lines += display.format_labelled_commands([("more", ("gpuready", "explain", diagnosis.code))])
    return lines
