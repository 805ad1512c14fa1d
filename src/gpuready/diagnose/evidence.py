"""The lines that show a cause, and what only follows from it."""

from __future__ import annotations

from gpuready.model.diagnosis import Consequence, LogEvidence

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpuready.diagnose.cause_suspect import CauseSuspect
    from gpuready.diagnose.event_order import EventOrder
    from gpuready.logs.log_lines import LogLine
    from gpuready.logs.log_summary import LogSummary, PatternMatch

MAX_EVIDENCE = 6
"""Maximum number of lines of evidence."""


def collect_evidence(summary: LogSummary, suspect: CauseSuspect, order: EventOrder) -> list[LogEvidence]:
    if suspect.failure is not None:
        failure = summary.failures[suspect.failure]
        index = order.exception_index(failure)
        return [make_evidence(summary, order, index)] if index is not None else []
    kept: dict[str, LogEvidence] = {}
    for match in suspect.seen:
        line = make_evidence(summary, order, match.index, match)
        kept.setdefault(line.text, line)
    return list(kept.values())[:MAX_EVIDENCE]


def make_evidence(summary: LogSummary, order: EventOrder, index: int, match: PatternMatch | None = None) -> LogEvidence:
    line = summary.lines[index]
    at = order.line_index(line)
    places = [i for i in (at - 2, at - 1, at + 1, at + 2) if 0 <= i < len(summary.lines)]
    beside = [summary.lines[i] for i in places if not _continues_command(summary, i)]
    near = [other for other in beside if other.source == line.source and 0 < abs(other.number - line.number) <= 2]
    return LogEvidence(
        summary.names[line.source] if line.source < len(summary.names) else "",
        abs(line.number),
        quote_line(line),
        line.rank,
        line.host,
        match.sign.code if match else "",
        match.sign.says if match else "",
        tuple(quote_line(other) for other in near if other.number < line.number),
        tuple(quote_line(other) for other in near if other.number > line.number),
    )


def _continues_command(summary: LogSummary, index: int) -> bool:
    """Whether the line before ends in a backslash: without it, nobody can see that this one is a secret's value."""
    return index > 0 and summary.lines[index - 1].text.rstrip().endswith("\\")


def quote_line(line: LogLine) -> str:
    """A line as it was written, white space folded; a derived line without its prefix."""
    return " ".join((line.raw or line.text.removeprefix("derived: ")).split())


def collect_consequences(
    summary: LogSummary, meanings: Mapping[str, str], first: CauseSuspect | None
) -> list[Consequence]:
    """Every kind of consequence once: where first, how often, on which ranks."""
    own = {s.index for s in first.seen} if first else set()
    groups: dict[str, list[PatternMatch]] = {}
    for match in summary.aftermath:
        if match.index not in own:
            groups.setdefault(meanings.get(match.sign.says, match.sign.says), []).append(match)
    found = []
    for means, matches in groups.items():
        line = matches[0].line
        ranks = tuple(sorted({s.line.rank for s in matches if s.line.rank is not None}))
        found.append(
            Consequence(
                line.folded_text[:200],
                means,
                abs(line.number),
                summary.names[line.source],
                ranks,
                len({s.index for s in matches}),
            )
        )
    return found
