"""The record of ``gpuready bench --job``: real steps beside the prediction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuready.model.fit_time import TimePrediction
from gpuready.model.record import Record

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
