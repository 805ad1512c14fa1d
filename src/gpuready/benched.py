"""The nouns of ``gpuready bench``: one measure with its verdict, why it may be slow, and the whole.

Rates are in FLOP/s, OP/s and bytes a second, times in seconds: only the screen has tera and micro.
"""

from __future__ import annotations

from gpuready.model import Fact, Noun, Report, Step

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

STEADY = 0.02
"""Two passes of one measure that differ by more than this are noisy."""

VERDICTS = (
    *("as-expected", "slow", "noisy", "undecided", "measured"),
    *("absent", "unsupported", "failed", "crashed", "hung", "skipped"),
)
"""as-expected: inside the band of this GPU, or above. slow: below it in every pass. noisy: the passes differ by more than
2 %. undecided: measured, and there is no band or the measurement is not valid. measured: nothing to compare it with.
The others are those of a proof."""


class Reason(Noun):
    """Something that explains why a measure is low, with its evidence and what to do."""

    says: str
    found: tuple[Fact, ...] = ()
    fix: tuple[Step, ...] = ()

    _nested = {"found": Fact, "fix": Step}


class Measure(Noun):
    """One number of one device, and what it is worth."""

    name: str
    verdict: str
    device: str = ""  # gpu 0, cpu, 2 ranks
    value: float | None = None
    unit: str = ""
    expected: float | None = None  # the catalogue's figure
    ratio: float | None = None
    band: tuple[float, ...] = ()  # low and high, from records
    why: str = ""
    spread: float | None = None  # the largest difference of two passes, as a share
    at: str = ""  # the shape, the size, the folder
    passes: tuple[float, ...] = ()  # the median of each pass
    best: float | None = None  # the best single turn
    reasons: tuple[Reason, ...] = ()
    cite: str = ""  # where the expected figure stands
    executed: str = ""  # where we have executed it ourselves; empty: never
    seconds: float = 0.0  # that it took, with its search
    tried: int = 0  # shapes

    _nested = {"reasons": Reason}


class Benched(Noun):
    """What one machine reached."""

    host: str
    python: str
    report: Report
    measures: tuple[Measure, ...] = ()
    versions: dict[str, str] = {}
    hardware: dict[str, Any] = {}
    made: str = ""  # UTC
    quick: bool = False
    repeat: int = 2
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        return self.report.verdict

    @property
    def exit(self) -> int:
        return self.report.exit


def spread(passes: tuple[float, ...]) -> float | None:
    """How far the passes lie apart, as a share of the largest; None where there is only one."""
    if len(passes) < 2 or max(passes) <= 0:
        return None
    return (max(passes) - min(passes)) / max(passes)
