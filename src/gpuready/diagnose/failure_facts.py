"""What a log tells of a failure whether its cause is known or not: lines, consequences, exceptions, rank, host, exit code."""

from collections.abc import Iterable, Mapping

from gpuready.diagnose.event_order import CauseSuspect, EventOrder
from gpuready.logs.lazy_regex import LazyRegex
from gpuready.logs.log_lines import LogLine
from gpuready.logs.log_summary import LogSummary, PatternMatch
from gpuready.logs.logged_exception import StackFrame
from gpuready.logs.run_activity import is_complaint_line
from gpuready.model.diagnosis import HEALTHY, Consequence, Diagnosis, ExceptionLink, LogEvidence

MAX_LINKS, MAX_MESSAGE = 8, 600
"""Exceptions of a chain, and characters of each message."""

MAX_STATED = 2000
_STATED_HOST = LazyRegex(r"\bGPU ?[=:] ?\d{1,4} ?[;,] ?hostname ?[=:] ?['\"]?([A-Za-z][\w.-]{0,63})")
"""The host of a GPU; a message of the network names the other side in such words."""


def describe_no_cause(summary: LogSummary, order: EventOrder) -> tuple[Diagnosis, int | None]:
    """Healthy where the log proves it, else no cause found; with the index of the most telling line."""
    if not order.has_failed and order.survived.proves_health():
        says = "the log ends normally or with progress, and shows no failure"
        return Diagnosis("healthy", HEALTHY, says=says, confidence=0.9), None
    telling = find_telling_line(summary, order)
    so = "it shows neither a failure nor progress at its end"
    if order.has_failed and (telling is None or not order.is_own_complaint(telling)):
        so = "the run failed, but the log does not tell why"
    elif telling is not None and is_complaint_line(summary.lines[telling]):
        so = "it has errors, but none of a known kind"
    return Diagnosis("unknown", says="the log shows no known cause", so=so), telling


def add_failure_facts(diagnosis: Diagnosis, summary: LogSummary, order: EventOrder) -> Diagnosis:
    """Add what the log tells of a failure without a cause."""
    if diagnosis.verdict == HEALTHY:
        return diagnosis
    final = find_final_exception(summary, order)
    rank = _find_rank(summary, order, final)
    own = summary.failures[final].rank if final is not None else None
    return diagnosis.replace(
        rank=rank,
        rank_confidence=rate_rank(order, rank, {own} if own is not None else set()),
        host=find_host(summary, rank, final),
        exceptions=describe_chain(summary, final),
        exit_code=_find_exit_code(summary, order, rank),
        command=_find_command(summary, final),
    )


# -- exceptions ----------------------------------------------------------------------------------------------


def find_final_exception(summary: LogSummary, order: EventOrder) -> int | None:
    """The exception that ended the first process to fail: the last one of its stream that no process survived."""
    fatal = [n for n, f in enumerate(summary.failures) if n not in order.survived.failures and (f.type or f.frames)]
    own = [n for n in fatal if not order.is_consequence(n)] or fatal
    first = {end.rank for end in order.first_exits if end.rank is not None}
    chosen = [n for n in own if summary.failures[n].rank in first] or own
    if not chosen:
        return None
    speakers = {n: (f.source, f.rank, f.pid, f.role) for n in chosen if (f := summary.failures[n])}
    return [n for n in chosen if speakers[n] == speakers[chosen[0]]][-1]


def follow_chain(summary: LogSummary, number: int | None) -> list[int]:
    """From an exception inwards to what it was raised from; what was only being handled meanwhile is not followed."""
    found: list[int] = []
    while number is not None and number not in found and len(found) < MAX_LINKS:
        found.append(number)
        failure = summary.failures[number]
        number = failure.after if failure.link == "cause" else None
    return found


def describe_chain(summary: LogSummary, number: int | None) -> tuple[ExceptionLink, ...]:
    """An exception and what it was raised from, with their innermost frames."""
    links = []
    for failure in (summary.failures[i] for i in follow_chain(summary, number)):
        frame = failure.frames[-1] if failure.frames else StackFrame("", 0)
        place = frame.file, frame.line, frame.function
        links.append(ExceptionLink(failure.type, failure.message[:MAX_MESSAGE], failure.at, *place))
    return tuple(links)


def find_telling_line(summary: LogSummary, order: EventOrder) -> int | None:
    """The line that says most: of the innermost exception, else the last complaint before what follows from it, else the last line."""
    final = find_final_exception(summary, order)
    said = order.last_own_complaint() if final is None or order.is_consequence(final) else None
    chain = follow_chain(summary, final)
    if said is None and chain:
        failure = summary.failures[chain[-1]]
        return order.exception_index(failure if failure.type else failure.replace(at=failure.last))
    own = [i for i, line in enumerate(summary.lines) if line.place != "derived" and line.text.strip()]
    complaints = (i for i in reversed(own[-400:]) if is_complaint_line(summary.lines[i]))
    return next(complaints, own[-1] if own else None) if said is None else said


# -- where ------------------------------------------------------------------------------------------------------


def _find_rank(summary: LogSummary, order: EventOrder, final: int | None) -> int | None:
    """The rank that the launcher names, else that of the exception, else the only one that speaks or failed."""
    named = next((end.rank for end in order.first_exits if end.rank is not None), None)
    if named is not None:
        return named
    if final is not None and summary.failures[final].rank is not None:
        return summary.failures[final].rank
    failed = {end.rank for end in summary.exits if end.code and not end.ended_by_launcher and end.rank is not None}
    ranks = failed or {line.rank for line in summary.lines if line.rank is not None}
    return ranks.pop() if len(ranks) == 1 else None


def rate_rank(order: EventOrder, rank: int | None, ranks: set[int]) -> float:
    """How sure a rank is: named by the launcher, the only one with the evidence, one of several, or concluded."""
    if rank is None:
        return 0.0
    if any(end.rank == rank for end in order.first_exits):
        return 0.95
    return 0.6 if rank not in ranks else 0.9 if len(ranks) == 1 else 0.7


def find_host(summary: LogSummary, rank: int | None, final: int | None) -> str:
    """The host of the rank that failed: from its exception, its exit or its lines; else the only one in the log."""
    if final is not None and summary.failures[final].host:
        return summary.failures[final].host
    ends = [end for end in summary.exits if end.host not in ("", "localhost")]
    own = [line for line in summary.lines if rank is not None and line.rank == rank]
    hosts = {end.host for end in ends if end.rank is not None and rank in (None, end.rank)}
    hosts = hosts or {line.host for line in own if line.host}
    if not hosts and rank is None:  # that of another task, or of who cancelled, says nothing of a rank
        hosts = {end.host for end in ends}
    if not hosts and (rank is None or own):
        hosts = {line.host for line in summary.lines if line.host}
    return hosts.pop() if len(hosts) == 1 else ""


def find_stated_host(texts: Iterable[str]) -> str:
    """The host that a message itself names: ``CUDA failure 35 ; GPU=0 ; hostname=node7``."""
    found = (match[1] for text in texts if (match := _STATED_HOST.search(text[:MAX_STATED])))
    return next(found, "")


def _find_exit_code(summary: LogSummary, order: EventOrder, rank: int | None) -> int | None:
    ends = [end for end in summary.exits if end.code is not None and not end.ended_by_launcher] or summary.exits
    chosen = [*order.first_exits, *(end for end in ends if end.rank == rank), *ends]
    return chosen[0].code if chosen else None


def _find_command(summary: LogSummary, final: int | None) -> str:
    """The command of the run, or the file of the outermost frame."""
    source = summary.failures[final].source if final is not None else 0
    command = summary.commands[source] if source < len(summary.commands) else ""
    frames = summary.failures[final].frames if final is not None else ()
    return command or next((frame.file for frame in frames if not frame.is_library), "")


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
    # without the line before it that ends in a backslash, nobody can see that a line is a secret's value
    beside = [summary.lines[i] for i in places if not (i and summary.lines[i - 1].text.rstrip().endswith("\\"))]
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
        count = len({s.index for s in matches})
        name = summary.names[line.source]
        found.append(Consequence(line.folded_text[:200], means, line.number, name, ranks, count))
    return found
