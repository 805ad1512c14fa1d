"""One possible cause of a failure, with its matches."""

from __future__ import annotations

from gpuready.logs.log_summary import PatternMatch
from gpuready.model.record import Record, field


class CauseSuspect(Record):
    """One possible cause, with its matches in the order of their weight."""

    cause: str
    code: str
    strength: str  # root, symptom, unknown, clue, report
    seen: tuple[PatternMatch, ...] = ()
    failure: int | None = None  # an unrecognised exception
    captures: dict[str, str] = field(default_factory=dict)  # of an unrecognised exception
