"""The nouns of a diagnosis: what happened first, where, why it is believed, and what to do.

Apart from ``model.py`` so that a check, which reads no log, does not pay for them.
"""

from __future__ import annotations

from gpuready.model import Noun, Step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

HEALTHY, NOT_ENVIRONMENT = "healthy", "not-environment"


class Evidence(Noun):
    """One line that decides, with its neighbours."""

    source: str
    line: int
    text: str
    rank: int | None = None
    host: str = ""
    code: str = ""
    sign: str = ""  # the words by which it was known
    before: tuple[str, ...] = ()
    after: tuple[str, ...] = ()


class Consequence(Noun):
    """What only followed: how often it was said, where first, and what it means."""

    says: str
    means: str
    line: int
    source: str = ""
    ranks: tuple[int, ...] = ()
    count: int = 1


class Alternative(Noun):
    """Another cause that the log allows, and what would decide."""

    cause: str
    code: str
    says: str
    confidence: float
    rank: int | None = None
    decide: str = ""
    evidence: tuple[Evidence, ...] = ()

    _nested = {"evidence": Evidence}


class Log(Noun):
    """One source that was read."""

    name: str
    lines: int
    bytes: int


class Diagnosis(Noun):
    """Why a run died, or that it did not."""

    verdict: str  # cause, healthy, unknown
    cause: str = ""  # the slug of the taxonomy: cuda-oom, not-environment, healthy
    code: str = ""
    says: str = ""
    so: str = ""
    rank: int | None = None
    host: str = ""
    confidence: float = 0.0
    evidence: tuple[Evidence, ...] = ()
    consequences: tuple[Consequence, ...] = ()
    fix: tuple[Step, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    frame: dict[str, Any] = {}  # in the user's own code: file, line, function
    captures: dict[str, str] = {}  # what the decisive line says: sizes, versions, names
    framework: str = ""
    here: bool = False  # whether this machine is the one that it ran on
    logs: tuple[Log, ...] = ()
    notes: tuple[str, ...] = ()

    _nested = {
        "evidence": Evidence,
        "consequences": Consequence,
        "fix": Step,
        "alternatives": Alternative,
        "logs": Log,
    }

    @property
    def exit(self) -> int:
        return {"healthy": 0, "cause": 1}.get(self.verdict, 3)
