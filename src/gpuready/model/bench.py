"""Records of ``gpuready bench``: one measurement with its verdict, possible reasons, the whole, and the steps of a job.

Rates are in FLOP/s, OP/s and bytes per second, times in seconds; only the screen uses tera and micro.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuready.model import Fact, FixStep, Report
from gpuready.model.fit import TimePrediction
from gpuready.model.record import Record, field

NOISE_LIMIT = 0.02
"""Relative difference between two passes of one measure above which it is noisy."""

MEASURE_VERDICTS = (
    *("as-expected", "slow", "noisy", "undecided", "measured"),
    *("absent", "unsupported", "failed", "crashed", "hung", "skipped"),
)
"""as-expected: inside the band of this GPU, or above. slow: below it in every pass. noisy: the passes differ by
more than 2 %. undecided: measured, but there is no band or the measurement is not valid. measured: nothing to
compare with. The others are those of a proof.
"""

FEWEST_CORES = 10
"""Passes of eager mode, each on other cores, from which a range is made."""


class SlowReason(Record):
    """A possible cause of a low measurement, with its evidence and the fix."""

    says: str
    found: tuple[Fact, ...] = ()
    fix: tuple[FixStep, ...] = ()


class BenchMeasure(Record):
    """One measurement on one device, with its verdict."""

    name: str
    verdict: str
    device: str = ""  # gpu 0, cpu, 2 ranks
    value: float | None = None
    unit: str = ""
    expected: float | None = None  # from the catalogue
    ratio: float | None = None
    band: tuple[float, ...] = ()  # low and high, from recorded runs
    why: str = ""
    spread: float | None = None  # largest difference between two passes, as a share
    at: str = ""  # shape, size or folder
    passes: tuple[float, ...] = ()  # median of each pass; in eager mode, the time on each pair of cores that was drawn
    best: float | None = None  # best single run
    reasons: tuple[SlowReason, ...] = ()
    cite: str = ""  # source of the expected figure
    executed: str = ""  # machine on which this measure was executed before; empty: none
    seconds: float = 0.0  # duration, including the search
    tried: int = 0  # number of shapes tried


class BenchResult(Record):
    """All measurements of one machine."""

    host: str
    python: str
    report: Report
    measures: tuple[BenchMeasure, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    hardware: dict[str, Any] = field(default_factory=dict)
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


def relative_spread(passes: tuple[float, ...]) -> float | None:
    """Return the largest difference between passes as a share of the largest; None for a single pass."""
    if len(passes) < 2 or max(passes) <= 0:
        return None
    return (max(passes) - min(passes)) / max(passes)


def typical_pass(passes: tuple[float, ...], group: str, better: str) -> float | None:
    """Return the best pass; in eager mode, where every pass runs on other cores, what a process can expect."""
    if group == "eager":
        return mean_of_middle(passes)
    return (min if better == "less" else max)(passes) if passes else None


def mean_of_middle(values: tuple[float, ...]) -> float | None:
    """Return the mean without the lowest and the highest tenth; None where there is nothing."""
    cut = len(values) // 10
    middle = sorted(values)[cut : len(values) - cut]
    return sum(middle) / len(middle) if middle else None


def range_by_core(passes: tuple[float, ...]) -> tuple[float, float] | None:
    """Return the range of passes that ran on different cores, without a twentieth at each end; None for too few."""
    if len(passes) < FEWEST_CORES:
        return None
    ordered, cut = sorted(passes), len(passes) // 20
    return ordered[cut], ordered[-1 - cut]


SLOW = 1.25
"""A step that takes this many times its prediction is slower than it should be."""


class JobBench(Record):
    """Measured steps of a job on one GPU, and what fit predicts for them."""

    job_name: str
    gpu: str
    job: Mapping[str, Any]
    predicted: TimePrediction | None
    measured: Mapping[str, float]  # seconds: step, and its parts
    predicted_memory: int
    measured_memory: int
    torch: str

    @property
    def ratio(self) -> float | None:
        """How many times its prediction the step takes."""
        if self.predicted is None or not self.predicted.step_seconds:
            return None
        return self.measured["step"] / self.predicted.step_seconds

    @property
    def exit(self) -> int:
        return 1 if self.ratio is not None and self.ratio >= SLOW else 0
