"""Decide from a LogSummary what happened first. Pure: nothing here opens a file.

1. Consequences are set aside, with the exceptions that say nothing else.
2. A pattern that names its cause (root) beats one with several (symptom), and both beat one that suggests it (clue); an
   unrecognised exception ranks before the clues. A clue counts where the run failed or nothing shows it alive afterwards.
   An unrecognised exception is judged by its origin: a conflict of two packages, the user's own code or data, or nothing.
3. Of several causes the first one in the same stream is the cause, and of a chain of exceptions the innermost; the others are alternatives. Clocks of different
   machines are never compared: between streams the launcher's report counts, else what only one rank has.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuready.diagnose.complaint import imports_own_tree
from gpuready.diagnose.event_order import CauseSuspect, EventOrder
from gpuready.diagnose.failure_facts import (
    add_failure_facts,
    collect_consequences,
    collect_evidence,
    describe_chain,
    describe_no_cause,
    find_final_exception,
    find_host,
    find_stated_host,
    follow_chain,
    make_evidence,
    rate_rank,
)
from gpuready.diagnose.logged_system import find_logged_versions
from gpuready.diagnose.origin import USER, calling_frames, find_origin, find_users_source, is_own_data, is_users_own
from gpuready.diagnose.python_release import PYTHON_VERSION, find_python_release
from gpuready.diagnose.stated_release import StatedRelease, find_stated_release
from gpuready.diagnose.version_conflict import SymbolTable, VersionConflict, check_direction, find_conflict
from gpuready.logs.log_patterns import STRENGTHS
from gpuready.logs.log_summary import LogSummary, PatternMatch, exception_chain
from gpuready.logs.logged_exception import LoggedException
from gpuready.logs.run_activity import is_complaint_line, states_error
from gpuready.model.diagnosis import NOT_ENVIRONMENT, VERSION_CONFLICT, AlternativeCause, Diagnosis, LogTotals

Cause = Mapping[str, Any]
Lookup = Callable[[str, str], Cause | None]
PairLookup = Callable[[str, str], str]

MAX_ALTERNATIVES, MIN_NAMED = 4, 0.5
"""Maximum number of alternatives, and the confidence below which no cause is named, only what it may be."""


def judge(
    summary: LogSummary,
    lookup: Lookup,
    meanings: Mapping[str, str],
    symbols: SymbolTable = lambda *_: (),
    pairs: PairLookup = lambda *_: "",
) -> Diagnosis:
    """Decide what happened first.

    ``lookup`` gives the row of a code and a slug; ``meanings`` what each consequence pattern means; ``symbols`` when a
    symbol of a package came and went; ``pairs`` the slug of a conflict of two packages that has a name of its own.
    """
    order = EventOrder(summary)
    suspects = _add_python_suspect(summary, lookup, order, symbols)
    if not any(s.cause == NOT_ENVIRONMENT for s in suspects):
        suspects += _unexplained_suspects(summary, lookup, order, suspects, symbols)
    suspects = _weaken_reports([s for s in suspects if not order.is_echo(s, suspects)], order)
    suspects.sort(key=order.suspect_weight)
    suspects = _put_reason_first(_put_inner_first(summary, suspects), lookup)
    if suspects and order.is_beside_end(suspects[0]) and order.ends_otherwise(suspects[0].seen):
        suspects.sort(key=lambda suspect: suspect.cause == NOT_ENVIRONMENT or order.fatal_index(suspect) < 0)
    logs = tuple(LogTotals(name, *total) for name, total in zip(summary.names, summary.totals, strict=True))
    after = tuple(collect_consequences(summary, meanings, suspects[0] if suspects else None))
    if not suspects:
        return _no_cause_diagnosis(summary, order).replace(logs=logs, consequences=after)
    number = _exception_of(suspects[0])
    conflict = None if number is None else _find_conflict(summary, number, symbols)
    first = _correct_direction(suspects[0], conflict, lookup)
    first = _correct_owner(summary, _correct_package(summary, first, lookup), lookup)
    first = _name_pair(first, conflict, lookup, pairs)
    others = [other for other in suspects[1:] if not _is_explained_by(first, other)]
    found = _build_diagnosis(summary, first, lookup, order)
    if number is not None:
        found = found.replace(
            origin=find_origin(summary.failures[number]).says, conflict=conflict.captures if conflict else {}
        )
    alternatives = [_make_alternative(summary, other, lookup, order) for other in others[:MAX_ALTERNATIVES]]
    alternatives += _alike_causes(first, lookup, {first.cause, *(other.cause for other in others)})
    row = lookup(first.code, first.cause) or {}
    grade = _grade_evidence(summary, first, order, row, conflict, found.captures)
    rivals = [other for other in others if not (_is_reason(first, lookup) and _is_beside(other, first))]
    confidence = _estimate_confidence(first, grade, rivals, order)
    if first.cause == VERSION_CONFLICT and not found.captures.keys() - {"type", "file", "line"}:
        confidence = min(confidence, MIN_NAMED)  # two packages of which none is named: a guess
    if confidence < MIN_NAMED and (order.has_failed or not order.survived.proves_health()):
        alternatives.insert(0, _make_alternative(summary, first, lookup, order))
        found, confidence = _no_cause_diagnosis(summary, order), 0.0
    return found.replace(
        logs=logs, consequences=after, confidence=confidence, alternatives=tuple(alternatives[:MAX_ALTERNATIVES])
    )


# -- suspects -------------------------------------------------------------------------------------


def _collect_suspects(summary: LogSummary, lookup: Lookup, order: EventOrder) -> list[CauseSuspect]:
    groups: dict[str, list[PatternMatch]] = {}
    for match in summary.matches:
        if order.was_survived(match) or order.is_note(match):
            continue
        if match.sign.strength == "clue" and order.is_overcome(match):
            continue
        row = lookup(match.sign.code, match.sign.cause)
        name = str(row["slug"]) if row else match.sign.code
        groups.setdefault(name, []).append(match)
    suspects = []
    for name, matches in groups.items():
        matches.sort(key=lambda s: (STRENGTHS.index(s.sign.strength), order.match_position(s), -s.sign.specificity))
        best = matches[0]
        if best.sign.strength == "trace":
            continue
        suspects.append(CauseSuspect(name, best.sign.code, best.sign.strength, tuple(matches)))
    return suspects


def _add_python_suspect(
    summary: LogSummary, lookup: Lookup, order: EventOrder, symbols: SymbolTable
) -> list[CauseSuspect]:
    """The suspects, with the first exception about a name of another Python in place of what the patterns make of it."""
    suspects = _collect_suspects(summary, lookup, order)
    for number, failure in enumerate(summary.failures):
        if order.is_consequence(number) or number in order.survived.failures:
            continue
        release = find_python_release(failure, symbols)
        if release is not None:
            code = _code_of(lookup, PYTHON_VERSION)
            found = CauseSuspect(PYTHON_VERSION, code, "root", failure=number, captures=release.captures)
            others = [s for s in suspects if s.cause != PYTHON_VERSION and any(m.failure != number for m in s.seen)]
            return [*others, found]
    return suspects


def _unexplained_suspects(
    summary: LogSummary, lookup: Lookup, order: EventOrder, others: Sequence[CauseSuspect], symbols: SymbolTable
) -> list[CauseSuspect]:
    """The first exception no pattern matches, by its origin."""
    source = find_users_source(summary) if all(other.strength == "clue" for other in others) else None
    if source is not None:
        return [CauseSuspect(NOT_ENVIRONMENT, _code_of(lookup, NOT_ENVIRONMENT), "unknown", failure=source)]
    explained = {other.failure for other in others}
    for number in order.unexplained_exceptions():
        if number in explained:
            continue
        conflict = _find_conflict(summary, number, symbols)
        if conflict:
            is_sure = conflict.direction not in ("", "undefined")
            strength, code = "symptom" if is_sure else "unknown", _code_of(lookup, VERSION_CONFLICT)
            return [CauseSuspect(VERSION_CONFLICT, code, strength, failure=number, captures=conflict.captures)]
        if stated := _find_stated(summary.failures[number]):
            return [_stated_suspect(stated, number, lookup)]
        if order.may_be_environment(number):
            continue
        if not is_users_own(summary, number) or any(order.is_raised_after(number, other.seen) for other in others):
            return []
        return [CauseSuspect(NOT_ENVIRONMENT, _code_of(lookup, NOT_ENVIRONMENT), "unknown", failure=number)]
    return []


def _weaken_reports(suspects: Sequence[CauseSuspect], order: EventOrder) -> list[CauseSuspect]:
    """Put what only warnings or a launcher tell last, where an exception that has a cause of the environment ended the process."""
    ends = [at for s in suspects if s.cause != NOT_ENVIRONMENT and (at := order.fatal_index(s)) >= 0]
    if not ends:
        return list(suspects)
    return [
        s.replace(strength="report")
        if s.seen and all(order.is_mere_report(m, min(ends), max(ends)) for m in s.seen)
        else s
        for s in suspects
    ]


def _put_inner_first(summary: LogSummary, suspects: list[CauseSuspect]) -> list[CauseSuspect]:
    """Move what the innermost exception tells before what only repeats it: ``the direct cause of the following exception``."""
    number = _exception_of(suspects[0]) if suspects else None
    least = (
        ("root", "symptom") if number is not None and suspects[0].strength == "root" else ("root", "symptom", "clue")
    )
    for inner in reversed(follow_chain(summary, number)[1:]):
        inner_suspects = [s for s in suspects if s.strength in least and any(m.failure == inner for m in s.seen)]
        if inner_suspects:
            return [*inner_suspects, *(suspect for suspect in suspects if suspect not in inner_suspects)]
    return suspects


def _put_reason_first(suspects: list[CauseSuspect], lookup: Lookup) -> list[CauseSuspect]:
    """Move what the system itself answered (no space, no permission) before the usual cause of what failed by it, a line away."""
    first = suspects[0] if suspects else None
    if first is None or not first.seen or _is_reason(first, lookup):
        return suspects
    found = next((s for s in suspects if _is_reason(s, lookup) and _is_beside(s, first)), first)
    return [found, *(suspect for suspect in suspects if suspect is not found)]


def _is_reason(suspect: CauseSuspect, lookup: Lookup) -> bool:
    return suspect.strength != "clue" and bool((lookup(suspect.code, suspect.cause) or {}).get("reason"))


def _is_beside(one: CauseSuspect, other: CauseSuspect) -> bool:
    """Whether two suspects are of the same message, or of lines next to each other."""
    pairs = (
        (a, b) for a in one.seen for b in other.seen if a.line.source == b.line.source and a.line.rank == b.line.rank
    )
    return any(abs(a.index - b.index) <= 1 for a, b in pairs)


def _correct_direction(suspect: CauseSuspect, conflict: VersionConflict | None, lookup: Lookup) -> CauseSuspect:
    """A version conflict in place of a cause that calls a package too old which the table of symbols calls too new."""
    too_old = (lookup(suspect.code, suspect.cause) or {}).get("too_old", ())
    if conflict is None or conflict.direction != "new" or conflict.package not in too_old:
        return suspect
    code, failure = _code_of(lookup, VERSION_CONFLICT), _exception_of(suspect)
    return CauseSuspect(VERSION_CONFLICT, code, "symptom", failure=failure, captures=conflict.captures)


def _correct_package(summary: LogSummary, suspect: CauseSuspect, lookup: Lookup) -> CauseSuspect:
    """A version conflict with the release for which the message itself asks, in place of any two packages or of others."""
    number = _exception_of(suspect)
    stated = _find_stated(summary.failures[number]) if number is not None else None
    words = " ".join((lookup(suspect.code, suspect.cause) or {}).get("pairs", ())).split()
    is_any = suspect.cause == VERSION_CONFLICT
    if stated is None or not (words or is_any) or stated.package.lower().replace("-", "_") in words:
        return suspect
    return _stated_suspect(stated, number, lookup)


def _find_stated(failure: LoggedException) -> StatedRelease | None:
    return find_stated_release(failure.short_type, failure.message)


def _stated_suspect(stated: StatedRelease, number: int | None, lookup: Lookup) -> CauseSuspect:
    """A version conflict of which the message says which release it takes."""
    code = _code_of(lookup, VERSION_CONFLICT)
    return CauseSuspect(VERSION_CONFLICT, code, "symptom", failure=number, captures={"stated": stated.requirement})


def _correct_owner(summary: LogSummary, suspect: CauseSuspect, lookup: Lookup) -> CauseSuspect:
    """The program itself in place of two packages, where it imports from its own source tree."""
    number = _exception_of(suspect)
    if suspect.cause != VERSION_CONFLICT or number is None or not imports_own_tree(summary.failures[number]):
        return suspect
    return CauseSuspect(NOT_ENVIRONMENT, _code_of(lookup, NOT_ENVIRONMENT), "unknown", failure=number)


def _name_pair(
    suspect: CauseSuspect, conflict: VersionConflict | None, lookup: Lookup, pairs: PairLookup
) -> CauseSuspect:
    """The cause that names two packages, or one of them, in place of the version conflict of any two."""
    if suspect.cause != VERSION_CONFLICT:
        return suspect
    named = suspect.seen[0].captures.get("package", "") if suspect.seen else ""
    parts = conflict.captures if conflict else {"stated": named} if named else {}
    suspect = suspect.replace(captures=suspect.captures or parts)
    if conflict and conflict.direction in ("mixed", "undefined"):
        return suspect
    pair = (conflict.caller, conflict.package or conflict.caller) if conflict else ("", named.lower().replace("-", "_"))
    slug = pairs(*pair)
    return suspect.replace(cause=slug, code=_code_of(lookup, slug)) if slug else suspect


def _find_conflict(summary: LogSummary, number: int, symbols: SymbolTable) -> VersionConflict | None:
    conflict = find_conflict(summary.failures[number], symbols)
    if conflict and conflict.caller == USER and not _user_code_frame(summary, number):
        conflict = conflict.replace(caller="")  # nothing shows that it is the user's script
    if conflict is None or not conflict.direction:
        return conflict
    return check_direction(conflict, find_logged_versions(summary).get(conflict.package, ""))


def _is_explained_by(first: CauseSuspect, other: CauseSuspect) -> bool:
    """Whether a weaker suspect, or the conflict of any two packages, has no evidence but what the first one explains already."""
    is_alike = other.strength == first.strength and (first.strength == "clue" or other.cause != VERSION_CONFLICT)
    if is_alike or not other.seen:
        return False
    lines, failures = {s.index for s in first.seen}, {s.failure for s in first.seen if s.failure is not None}
    return all(s.index in lines or s.failure in failures for s in other.seen)


def _code_of(lookup: Lookup, slug: str) -> str:
    row = lookup("", slug)
    return str(row["codes"][0]) if row else ""


# -- diagnosis -------------------------------------------------------------------------------------------


def _build_diagnosis(summary: LogSummary, first: CauseSuspect, lookup: Lookup, order: EventOrder) -> Diagnosis:
    row = lookup(first.code, first.cause) or {}
    captures = dict(first.captures)
    for match in reversed(first.seen):  # of one exception they belong together, else the first counts alone
        if match is first.seen[0] or (match.failure is not None and match.failure == first.seen[0].failure):
            captures |= {name: word for name, word in match.captures.items() if word.lower() not in _NO_NAMES}
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
    evidence = tuple(collect_evidence(summary, first, order))
    return Diagnosis(
        "cause",
        first.cause,
        first.code,
        str(row.get("says", "")),
        str(row.get("so", "")),
        rank,
        host or find_host(summary, rank, number) or find_stated_host(line.text for line in evidence),
        rank_confidence=rate_rank(order, rank, _ranks_of(summary, first)),
        evidence=evidence,
        frame=frame if first.cause == NOT_ENVIRONMENT else {},
        captures=captures,
        exceptions=describe_chain(summary, number),
        origin=find_origin(summary.failures[number]).says if number is not None else "",
    )


_NO_NAMES = {
    "a", "an", "and", "are", "be", "but", "for", "from", "has", "have", "if", "in", "is", "it", "its", "library",
    "module", "not", "of", "on", "or", "package", "packages", "program", "python", "software", "that", "the", "there",
    "these", "this", "to", "tool", "version", "was", "were", "which", "with", "you", "your",
}  # fmt: skip
"""Words that stand where a message may have a name, and are none."""


def _ranks_of(summary: LogSummary, suspect: CauseSuspect) -> set[int]:
    """The ranks that a suspect's evidence is of."""
    own = summary.failures[suspect.failure].rank if suspect.failure is not None else None
    return {rank for rank in (own, *(match.line.rank for match in suspect.seen)) if rank is not None}


def _exception_of(suspect: CauseSuspect) -> int | None:
    """The exception a suspect is based on."""
    if suspect.failure is not None:
        return suspect.failure
    return next((s.failure for s in suspect.seen if s.failure is not None), None)


def _user_code_frame(summary: LogSummary, number: int | None) -> dict[str, Any]:
    """The innermost frame in the user's own code, of the exception, else of one in its chain."""
    for i in dict.fromkeys((number, *exception_chain(summary.failures, number))) if number is not None else ():
        for frame, package in calling_frames(summary.failures[i]):
            if package == USER:
                return {"file": frame.file, "line": frame.line, "function": frame.function}
    return {}


GRADES = {"stated": 0.95, "tabled": 0.8, "symptom": 0.7, "unknown": 0.6, "clue": 0.55}
"""How sure a class of evidence is: words that state the cause, releases in a table, a symptom of several causes, an origin, a hint."""


def _grade_evidence(
    summary: LogSummary,
    first: CauseSuspect,
    order: EventOrder,
    row: Cause,
    conflict: VersionConflict | None,
    captures: Mapping[str, str],
) -> str:
    """The class of a suspect's evidence. *Stated* is what the message that ended the run says itself, with the name of what it is about."""
    is_pair = conflict is not None and _is_of_pair(first, row, conflict)
    if (is_pair and conflict and conflict.is_directed) or ">" in first.captures.get("stated", ""):
        return "tabled"
    if first.cause == NOT_ENVIRONMENT and first.failure is not None and is_own_data(summary.failures[first.failure]):
        return "tabled"
    if first.strength not in ("root", "symptom"):
        return first.strength
    named = [captures[name] for name in row.get("names", ()) if captures.get(name)]
    is_named = not row.get("names") or any(not _is_at_work(summary, name) for name in named)
    is_alike = bool(first.seen) and bool(first.seen[0].sign.others)
    proofs = tuple(match for match in first.seen if match.sign.is_proof)
    is_weak = is_alike or (not proofs and bool(is_pair or row.get("broad")))
    is_stated = first.strength == "root" and is_named and not is_weak
    return "stated" if is_stated and _is_in_ending_error(summary, proofs or first.seen, order) else "symptom"


def _is_at_work(summary: LogSummary, name: str) -> bool:
    """Whether what is said to be missing is called in the same log: a frame is in its files."""
    folder = f"-packages/{name.replace('.', '/')}/"
    return any(folder in frame.file for failure in summary.failures for frame in failure.frames)


def _is_of_pair(suspect: CauseSuspect, row: Cause, conflict: VersionConflict) -> bool:
    """Whether a cause is the version conflict of any two packages, or that of one of these two."""
    words = " ".join(row.get("pairs", ())).split()
    return suspect.cause == VERSION_CONFLICT or bool({conflict.package, conflict.caller} & set(words))


def _is_in_ending_error(summary: LogSummary, seen: Sequence[PatternMatch], order: EventOrder) -> bool:
    """Whether words stand in the message that ended the first process to fail, or in no exception: in a line that calls itself an error proves it, or complains where nothing else ended."""
    final = find_final_exception(summary, order)
    chain = exception_chain(summary.failures, final) if final is not None else []
    ends = {_error_of(summary.failures[number]) for number in chain}
    for match in seen:
        failure = summary.failures[match.failure] if match.failure is not None else None
        is_said = match.sign.is_proof or states_error(match.line) or (final is None and is_complaint_line(match.line))
        if failure is None and is_said:
            return True
        is_message = failure is not None and (match.line.number >= failure.at or not failure.type)
        if failure is not None and is_message and (not ends or _error_of(failure) in ends):
            return True
    return not seen


def _error_of(failure: LoggedException) -> tuple[str, str]:
    """Type and beginning of an error: that of several ranks is the same."""
    return failure.short_type, failure.message[:40]


def _estimate_confidence(first: CauseSuspect, grade: str, others: Sequence[CauseSuspect], order: EventOrder) -> float:
    """By the class of its evidence and by structure: 0.8 or more only for what ended the run, without a rival."""
    sure, most = GRADES[grade], GRADES["symptom"]
    if first.seen and first.seen[0].sign.others:
        sure -= 0.05 if len(first.seen[0].sign.others) < 3 else 0.1  # of four none is named
    if not order.tells_end(first, by_itself=True):
        sure = min(sure, most)
    if not order.tells_end(first) and first.strength == "clue" and order.ends_otherwise(first.seen):
        return 0.0
    if _is_rivalled(first, others, order):
        sure = min(sure, most + 0.15) - 0.15
    return round(sure, 2)


def _is_rivalled(first: CauseSuspect, others: Sequence[CauseSuspect], order: EventOrder) -> bool:
    """Whether another cause is told as clearly, in what ended a process."""
    alike = first.seen[0].sign.others if first.seen else ()
    rivals = [other for other in others if other.strength == first.strength and other.cause not in alike]
    return any(not other.seen or not order.match_position(other.seen[0])[0] for other in rivals)


def _make_alternative(
    summary: LogSummary, suspect: CauseSuspect, lookup: Lookup, order: EventOrder
) -> AlternativeCause:
    row = lookup(suspect.code, suspect.cause) or {}
    confidence = {"root": 0.4, "symptom": 0.3, "unknown": 0.2, "clue": 0.2, "report": 0.1}[suspect.strength]
    return AlternativeCause(
        suspect.cause, suspect.code, str(row.get("says", "")), confidence, order.locate_suspect(suspect)[0], str(row.get("decide", "")),
        tuple(collect_evidence(summary, suspect, order)[:2]),
    )  # fmt: skip


def _alike_causes(first: CauseSuspect, lookup: Lookup, named: set[str]) -> list[AlternativeCause]:
    """Causes that show themselves in the same words as the first one."""
    slugs = [slug for slug in (first.seen[0].sign.others if first.seen else ()) if slug not in named]
    rows = [(slug, lookup("", slug) or {}) for slug in slugs]
    return [
        AlternativeCause(
            slug, _code_of(lookup, slug), str(row.get("says", "")), 0.25, decide=str(row.get("decide", ""))
        )
        for slug, row in rows
    ]


def _no_cause_diagnosis(summary: LogSummary, order: EventOrder) -> Diagnosis:
    found, telling = describe_no_cause(summary, order)
    evidence = () if telling is None else (make_evidence(summary, order, telling),)
    chain = follow_chain(summary, find_final_exception(summary, order))
    origin = find_origin(summary.failures[chain[-1]]).says if chain else ""
    frame = _user_code_frame(summary, chain[-1]) if chain else {}
    return add_failure_facts(found.replace(evidence=evidence, origin=origin, frame=frame), summary, order)
