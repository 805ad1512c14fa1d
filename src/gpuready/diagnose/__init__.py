"""Decide from a LogSummary what happened first. Pure: nothing here opens a file or knows a cause by name.

1. Consequences are set aside, with the exceptions that say nothing else.
2. A pattern that names its cause (root) beats one with several (symptom), and both beat one that suggests it (clue); an
   unrecognised exception ranks before the clues. A clue counts where the run failed or nothing shows it alive afterwards.
3. Of several causes the first one in the same stream is the cause; the others are alternatives. Clocks of different
   machines are never compared: between streams the launcher's report counts, else what only one rank has.
"""

from __future__ import annotations

from gpuready.diagnose.order import Order
from gpuready.diagnosed import HEALTHY, NOT_ENVIRONMENT, Alternative, Consequence, Diagnosis, Evidence, Log
from gpuready.logs.story import chain
from gpuready.noun import Noun

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from gpuready.logs.lines import Line
    from gpuready.logs.story import Sighting, Story

    Cause = Mapping[str, Any]
    Lookup = Callable[[str, str], Cause | None]

SHOWN, SIDE = 6, 4
"""Maximum number of lines of evidence, and of alternatives."""


class Suspect(Noun):
    """One possible cause, with its matches in the order of their weight."""

    cause: str
    code: str
    strength: str  # root, symptom, unknown, clue
    seen: tuple[Sighting, ...] = ()
    failure: int | None = None  # an unrecognised exception
    last: int | None = None  # an unrecognised complaint


def judge(story: Story, lookup: Lookup, aftermath: Mapping[str, str]) -> Diagnosis:
    """Decide what happened first. ``lookup`` gives the row of a code and a slug; ``meanings`` what each consequence pattern means."""
    order = Order(story)
    suspects = sorted(_suspects(story, lookup, order) or _revived(story, lookup, order), key=order.weight)
    logs = tuple(Log(name, *total) for name, total in zip(story.names, story.totals, strict=True))
    after = tuple(_consequences(story, aftermath, suspects[0] if suspects else None))
    if not suspects:
        return _none(story, order).but(logs=logs, consequences=after)
    first = suspects[0]
    others = [other for other in suspects[1:] if not _same_words(first, other)]
    found = _diagnosis(story, first, lookup, order)
    return found.but(
        logs=logs,
        consequences=after,
        confidence=_confidence(first, others, order),
        alternatives=tuple(_alternative(story, other, lookup, order) for other in others[:SIDE]),
    )


# -- suspects -------------------------------------------------------------------------------------


def _revived(story: Story, lookup: Lookup, order: Order) -> list[Suspect]:
    """Where a run failed without another suspect: what it seemed to have survived."""
    return _suspects(story, lookup, order, all_of_it=True) if order.failed else []


def _suspects(story: Story, lookup: Lookup, order: Order, all_of_it: bool = False) -> list[Suspect]:
    groups: dict[str, list[Sighting]] = {}
    for sighting in story.sightings:
        if not all_of_it and order.overcome(sighting):
            continue
        if sighting.sign.strength == "clue" and not order.failed and order.lives_after(sighting):
            continue
        row = lookup(sighting.sign.code, sighting.sign.cause)
        name = str(row["slug"]) if row else sighting.sign.code
        groups.setdefault(name, []).append(sighting)
    suspects = []
    for name, seen in groups.items():
        seen.sort(key=lambda s: (_grade(s), order.place(s)))
        best = seen[0]
        if best.sign.strength == "trace":
            continue
        suspects.append(Suspect(name, best.sign.code, best.sign.strength, tuple(seen)))
    if not any(s.cause == NOT_ENVIRONMENT for s in suspects):
        suspects += _unknown(lookup, order, bool(suspects))
    return suspects


def _unknown(lookup: Lookup, order: Order, others: bool) -> list[Suspect]:
    """An exception no pattern matches; or, where there is nothing else, the complaint with which the log ends."""
    failure = order.unexplained()
    if failure is not None:
        return [Suspect(NOT_ENVIRONMENT, _code(lookup), "unknown", failure=failure)]
    last = None if others else order.last_words()
    return [] if last is None else [Suspect(NOT_ENVIRONMENT, _code(lookup), "unknown", last=last)]


def _same_words(first: Suspect, other: Suspect) -> bool:
    """Whether a weaker suspect has no evidence but what the first one explains already."""
    if other.strength == first.strength or not other.seen:
        return False
    lines, failures = {s.index for s in first.seen}, {s.failure for s in first.seen if s.failure is not None}
    return all(s.index in lines or s.failure in failures for s in other.seen)


def _grade(sighting: Sighting) -> int:
    return ("root", "symptom", "clue", "trace").index(sighting.sign.strength)


def _code(lookup: Lookup) -> str:
    row = lookup("", NOT_ENVIRONMENT)
    return str(row["codes"][0]) if row else ""


# -- diagnosis -------------------------------------------------------------------------------------------


def _diagnosis(story: Story, first: Suspect, lookup: Lookup, order: Order) -> Diagnosis:
    row = lookup(first.code, first.cause) or {}
    captures = dict(first.seen[0].captures) if first.seen else {}
    number = _failure_of(first)
    frame = _frame(story, number)
    if number is not None:
        named = {
            "type": story.failures[number].short,
            "file": str(frame.get("file", "")),
            "line": str(frame.get("line", "")),
        }
        captures = {key: value for key, value in named.items() if value} | captures
    rank, host = order.who(first)
    return Diagnosis(
        "cause",
        first.cause,
        first.code,
        str(row.get("says", "")),
        str(row.get("so", "")),
        rank,
        host,
        evidence=tuple(_evidence(story, first, order)),
        frame=frame if first.cause == NOT_ENVIRONMENT else {},
        captures=captures,
    )


def _failure_of(suspect: Suspect) -> int | None:
    """The exception a suspect is based on."""
    if suspect.failure is not None:
        return suspect.failure
    return next((s.failure for s in suspect.seen if s.failure is not None), None)


def _frame(story: Story, number: int | None) -> dict[str, Any]:
    """The innermost frame in the user's own code, of the exception or of one in its chain."""
    for i in chain(story.failures, number) if number is not None else ():
        frame = story.failures[i].user_frame
        if frame is not None:
            return {"file": frame.file, "line": frame.line, "function": frame.function}
    return {}


def _evidence(story: Story, suspect: Suspect, order: Order) -> list[Evidence]:
    if suspect.last is not None:
        return [_shown(story, order, suspect.last)]
    if suspect.failure is not None:
        failure = story.failures[suspect.failure]
        index = order.index_of(failure)
        return [_shown(story, order, index)] if index is not None else []
    kept: dict[str, Evidence] = {}
    for sighting in suspect.seen:
        line = _shown(story, order, sighting.index, sighting)
        kept.setdefault(line.text, line)
    return list(kept.values())[:SHOWN]


def _shown(story: Story, order: Order, index: int, sighting: Sighting | None = None) -> Evidence:
    line = story.lines[index]
    at = order.index(line)
    beside = [story.lines[i] for i in (at - 2, at - 1, at + 1, at + 2) if 0 <= i < len(story.lines)]
    near = [
        other for other in beside if other.source == line.source and 0 < abs(other.number - line.number) <= 2
    ]
    return Evidence(
        story.names[line.source] if line.source < len(story.names) else "",
        line.number,
        quoted(line),
        line.rank,
        line.host,
        sighting.sign.code if sighting else "",
        sighting.sign.says if sighting else "",
        tuple(quoted(other) for other in near if other.number < line.number),
        tuple(quoted(other) for other in near if other.number > line.number),
    )


def quoted(line: Line) -> str:
    """A line as it was written, white space folded; a derived line without its prefix."""
    return " ".join((line.raw or line.text.removeprefix("derived: ")).split())


def _confidence(first: Suspect, others: Sequence[Suspect], order: Order) -> float:
    sure = {"root": 0.95, "symptom": 0.8, "unknown": 0.6, "clue": 0.6 if order.failed else 0.5}[
        first.strength
    ]
    rivals = [other for other in others if other.strength == first.strength]
    return round(sure - (0.15 if rivals else 0.0), 2)


def _alternative(story: Story, suspect: Suspect, lookup: Lookup, order: Order) -> Alternative:
    row = lookup(suspect.code, suspect.cause) or {}
    confidence = {"root": 0.4, "symptom": 0.3, "unknown": 0.2, "clue": 0.2}[suspect.strength]
    return Alternative(
        suspect.cause, suspect.code, str(row.get("says", "")), confidence, order.who(suspect)[0], str(row.get("decide", "")),
        tuple(_evidence(story, suspect, order)[:2]),
    )  # fmt: skip


def _consequences(story: Story, aftermath: Mapping[str, str], first: Suspect | None) -> list[Consequence]:
    """Every kind of consequence once: where first, how often, on which ranks."""
    own = {s.index for s in first.seen} if first else set()
    groups: dict[str, list[Sighting]] = {}
    for sighting in story.aftermath:
        if sighting.index not in own:
            groups.setdefault(aftermath.get(sighting.sign.says, sighting.sign.says), []).append(sighting)
    found = []
    for means, seen in groups.items():
        line = seen[0].line
        ranks = tuple(sorted({s.line.rank for s in seen if s.line.rank is not None}))
        found.append(
            Consequence(
                line.words[:200],
                means,
                line.number,
                story.names[line.source],
                ranks,
                len({s.index for s in seen}),
            )
        )
    return found


def _none(story: Story, order: Order) -> Diagnosis:
    if order.failed:
        return Diagnosis("unknown", says="the run failed, and nothing in the log says why")
    return Diagnosis(
        "healthy",
        HEALTHY,
        says="nothing in the log tells of a failure",
        confidence=0.9 if story.lines else 0.0,
    )
