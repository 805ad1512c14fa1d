"""Records of a diagnosis: what happened first, where, the evidence, and what to do.

Separate from ``model.py`` so that a check, which reads no log, does not import them.
"""

from __future__ import annotations

from typing import Any

from gpuready.model import FixStep, Record
from gpuready.model.record import field

HEALTHY, NOT_ENVIRONMENT, VERSION_CONFLICT = "healthy", "not-environment", "version-conflict"


class LogEvidence(Record):
    """One decisive line with its neighbours."""

    source: str
    line: int
    text: str
    rank: int | None = None
    host: str = ""
    code: str = ""
    sign: str = ""  # the text of the pattern that matched
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


class Consequence(Record):
    """A message that only follows from the cause: how often, where first, and what it means."""

    says: str
    means: str
    line: int
    source: str = ""
    ranks: tuple[int, ...] = ()
    count: int = 1


class AlternativeCause(Record):
    """Another cause the log allows, and what would decide between them."""

    cause: str
    code: str
    says: str
    confidence: float
    rank: int | None = None
    decide: str = ""
    evidence: tuple[LogEvidence, ...] = ()


class ExceptionLink(Record):
    """One exception of a chain, with its innermost frame. The first link ended the process; the next is what it was raised from."""

    type: str
    message: str
    line: int  # of the log
    file: str = ""
    file_line: int = 0
    function: str = ""


class LogTotals(Record):
    """Name and size of one log that was read."""

    name: str
    lines: int
    bytes: int


class Diagnosis(Record):
    """Why a run failed, or that it did not."""

    verdict: str  # cause, healthy, unknown
    cause: str = ""  # slug, the name of a file in catalog/causes: cuda-oom, not-environment, healthy
    code: str = ""
    says: str = ""
    so: str = ""
    rank: int | None = None
    host: str = ""
    confidence: float = 0.0  # of the cause
    rank_confidence: float = 0.0  # of the rank, where one is named
    evidence: tuple[LogEvidence, ...] = ()
    consequences: tuple[Consequence, ...] = ()
    fix: tuple[FixStep, ...] = ()
    alternatives: tuple[AlternativeCause, ...] = ()
    frame: dict[str, Any] = field(default_factory=dict)  # in the user's own code: file, line, function
    captures: dict[str, str] = field(default_factory=dict)  # from the decisive line: sizes, versions, names
    origin: str = ""  # whose frame is the innermost of the exception: the user's own code, a package
    conflict: dict[str, str] = field(
        default_factory=dict
    )  # two packages that do not fit: package, symbol, gone or came
    opinion: str = ""  # what the program that --ask names answered: its words, which change nothing here
    framework: str = ""
    here: bool = False  # whether the run was on this machine
    logs: tuple[LogTotals, ...] = ()
    notes: tuple[str, ...] = ()
    exceptions: tuple[ExceptionLink, ...] = ()  # from the one that ended the process inwards
    exit_code: int | None = None  # of the process that failed; a negative one is a signal
    command: str = ""  # what was running

    @property
    def exit(self) -> int:
        return {"healthy": 0, "cause": 1}.get(self.verdict, 3)
