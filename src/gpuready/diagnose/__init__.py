"""Decide from a LogSummary what happened first. Pure: nothing here opens a file or knows a cause by name.

1. Consequences are set aside, with the exceptions that say nothing else.
2. A pattern that names its cause (root) beats one with several (symptom), and both beat one that suggests it (clue); an
   unrecognised exception ranks before the clues. A clue counts where the run failed or nothing shows it alive afterwards.
3. Of several causes the first one in the same stream is the cause; the others are alternatives. Clocks of different
   machines are never compared: between streams the launcher's report counts, else what only one rank has.
"""

from __future__ import annotations

from gpuready.diagnose.event_order import EventOrder
from gpuready.logs.log_summary import LogSummary, PatternMatch, exception_chain
from gpuready.model.diagnosis import (
    HEALTHY,
    NOT_ENVIRONMENT,
    AlternativeCause,
    Consequence,
    Diagnosis,
    LogEvidence,
    LogTotals,
)
from gpuready.model.record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from gpuready.logs.log_lines import LogLine

    Cause = Mapping[str, Any]
    Lookup = Callable[[str, str], Cause | None]

MAX_EVIDENCE, MAX_ALTERNATIVES = 6, 4
"""Maximum number of lines of evidence, and of alternatives."""


class CauseSuspect(Record):
    """One possible cause, with its matches in the order of their weight."""

    cause: str
    code: str
    strength: str  # root, symptom, unknown, clue
    seen: tuple[PatternMatch, ...] = ()
    failure: int | None = None  # an unrecognised exception
    last: int | None = None  # an unrecognised complaint


def judge(summary: LogSummary, lookup: Lookup, meanings: Mapping[str, str]) -> Diagnosis:
    """Decide what happened first. ``lookup`` gives the row of a code and a slug; ``meanings`` what each consequence pattern means."""
    order = EventOrder(summary)
    suspects = sorted(
        _collect_suspects(summary, lookup, order) or _suspects_from_survived(summary, lookup, order),
        key=order.suspect_weight,
    )
    logs = tuple(LogTotals(name, *total) for name, total in zip(summary.names, summary.totals, strict=True))
    after = tuple(_collect_consequences(summary, meanings, suspects[0] if suspects else None))
    if not suspects:
        return _no_cause_diagnosis(summary, order).replace(logs=logs, consequences=after)
    first = suspects[0]
    others = [other for other in suspects[1:] if not _is_explained_by(first, other)]
    found = _build_diagnosis(summary, first, lookup, order)
    return found.replace(
        logs=logs,
        consequences=after,
        confidence=_estimate_confidence(first, others, order),
        alternatives=tuple(_make_alternative(summary, other, lookup, order) for other in others[:MAX_ALTERNATIVES]),
    )


# -- suspects -------------------------------------------------------------------------------------


def _suspects_from_survived(summary: LogSummary, lookup: Lookup, order: EventOrder) -> list[CauseSuspect]:
    """Where a run failed without another suspect: what it seemed to have survived."""
    return _collect_suspects(summary, lookup, order, all_of_it=True) if order.has_failed else []


def _collect_suspects(
    summary: LogSummary, lookup: Lookup, order: EventOrder, all_of_it: bool = False
) -> list[CauseSuspect]:
    groups: dict[str, list[PatternMatch]] = {}
    for match in summary.matches:
        if not all_of_it and order.was_survived(match):
            continue
        if match.sign.strength == "clue" and not order.has_failed and order.is_alive_after(match):
            continue
        row = lookup(match.sign.code, match.sign.cause)
        name = str(row["slug"]) if row else match.sign.code
        groups.setdefault(name, []).append(match)
    suspects = []
    for name, matches in groups.items():
        matches.sort(key=lambda s: (_strength_order(s), order.match_position(s)))
        best = matches[0]
        if best.sign.strength == "trace":
            continue
        suspects.append(CauseSuspect(name, best.sign.code, best.sign.strength, tuple(matches)))
    if not any(s.cause == NOT_ENVIRONMENT for s in suspects):
        suspects += _unexplained_suspects(lookup, order, bool(suspects))
    return suspects


def _unexplained_suspects(lookup: Lookup, order: EventOrder, others: bool) -> list[CauseSuspect]:
    """An exception no pattern matches; or, where there is nothing else, the complaint with which the log ends."""
    failure = order.first_unexplained()
    if failure is not None:
        return [CauseSuspect(NOT_ENVIRONMENT, _not_environment_code(lookup), "unknown", failure=failure)]
    last = None if others else order.final_complaint()
    return [] if last is None else [CauseSuspect(NOT_ENVIRONMENT, _not_environment_code(lookup), "unknown", last=last)]


def _is_explained_by(first: CauseSuspect, other: CauseSuspect) -> bool:
    """Whether a weaker suspect has no evidence but what the first one explains already."""
    if other.strength == first.strength or not other.seen:
        return False
    lines, failures = {s.index for s in first.seen}, {s.failure for s in first.seen if s.failure is not None}
    return all(s.index in lines or s.failure in failures for s in other.seen)


def _strength_order(match: PatternMatch) -> int:
    return ("root", "symptom", "clue", "trace").index(match.sign.strength)


def _not_environment_code(lookup: Lookup) -> str:
    row = lookup("", NOT_ENVIRONMENT)
    return str(row["codes"][0]) if row else ""


# -- diagnosis -------------------------------------------------------------------------------------------


def _build_diagnosis(summary: LogSummary, first: CauseSuspect, lookup: Lookup, order: EventOrder) -> Diagnosis:
    row = lookup(first.code, first.cause) or {}
    captures = dict(first.seen[0].captures) if first.seen else {}
    number = _exception_of(first)
    frame = _user_code_frame(summary, number)
    if number is not None:
        from_exception = {
            "type": summary.failures[number].short_type,
            "file": str(frame.get("file", "")),
            "line": str(frame.get("line", "")),
        }
        captures = {key: value for key, value in from_exception.items() if value} | captures
    rank, host = order.locate_suspect(first)
    return Diagnosis(
        "cause",
        first.cause,
        first.code,
        str(row.get("says", "")),
        str(row.get("so", "")),
        rank,
        host,
        evidence=tuple(_collect_evidence(summary, first, order)),
        frame=frame if first.cause == NOT_ENVIRONMENT else {},
        captures=captures,
    )


def _exception_of(suspect: CauseSuspect) -> int | None:
    """The exception a suspect is based on."""
    if suspect.failure is not None:
        return suspect.failure
    return next((s.failure for s in suspect.seen if s.failure is not None), None)


def _user_code_frame(summary: LogSummary, number: int | None) -> dict[str, Any]:
    """The innermost frame in the user's own code, of the exception or of one in its chain."""
    for i in exception_chain(summary.failures, number) if number is not None else ():
        frame = summary.failures[i].user_frame
        if frame is not None:
            return {"file": frame.file, "line": frame.line, "function": frame.function}
    return {}


def _collect_evidence(summary: LogSummary, suspect: CauseSuspect, order: EventOrder) -> list[LogEvidence]:
    if suspect.last is not None:
        return [_make_evidence(summary, order, suspect.last)]
    if suspect.failure is not None:
        failure = summary.failures[suspect.failure]
        index = order.exception_index(failure)
        return [_make_evidence(summary, order, index)] if index is not None else []
    kept: dict[str, LogEvidence] = {}
    for match in suspect.seen:
        line = _make_evidence(summary, order, match.index, match)
        kept.setdefault(line.text, line)
    return list(kept.values())[:MAX_EVIDENCE]


def _make_evidence(
    summary: LogSummary, order: EventOrder, index: int, match: PatternMatch | None = None
) -> LogEvidence:
    line = summary.lines[index]
    at = order.line_index(line)
    beside = [summary.lines[i] for i in (at - 2, at - 1, at + 1, at + 2) if 0 <= i < len(summary.lines)]
    near = [other for other in beside if other.source == line.source and 0 < abs(other.number - line.number) <= 2]
    return LogEvidence(
        summary.names[line.source] if line.source < len(summary.names) else "",
        line.number,
        quote_line(line),
        line.rank,
        line.host,
        match.sign.code if match else "",
        match.sign.says if match else "",
        tuple(quote_line(other) for other in near if other.number < line.number),
        tuple(quote_line(other) for other in near if other.number > line.number),
    )


def quote_line(line: LogLine) -> str:
    """A line as it was written, white space folded; a derived line without its prefix."""
    return " ".join((line.raw or line.text.removeprefix("derived: ")).split())


def _estimate_confidence(first: CauseSuspect, others: Sequence[CauseSuspect], order: EventOrder) -> float:
    sure = {"root": 0.95, "symptom": 0.8, "unknown": 0.6, "clue": 0.6 if order.has_failed else 0.5}[first.strength]
    rivals = [other for other in others if other.strength == first.strength]
    return round(sure - (0.15 if rivals else 0.0), 2)


def _make_alternative(
    summary: LogSummary, suspect: CauseSuspect, lookup: Lookup, order: EventOrder
) -> AlternativeCause:
    row = lookup(suspect.code, suspect.cause) or {}
    confidence = {"root": 0.4, "symptom": 0.3, "unknown": 0.2, "clue": 0.2}[suspect.strength]
    return AlternativeCause(
        suspect.cause, suspect.code, str(row.get("says", "")), confidence, order.locate_suspect(suspect)[0], str(row.get("decide", "")),
        tuple(_collect_evidence(summary, suspect, order)[:2]),
    )  # fmt: skip


def _collect_consequences(
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
                line.number,
                summary.names[line.source],
                ranks,
                len({s.index for s in matches}),
            )
        )
    return found


def _no_cause_diagnosis(summary: LogSummary, order: EventOrder) -> Diagnosis:
    if order.has_failed:
        return Diagnosis("unknown", says="the run failed, and nothing in the log says why")
    return Diagnosis(
        "healthy", HEALTHY, says="nothing in the log tells of a failure", confidence=0.9 if summary.lines else 0.0
    )
