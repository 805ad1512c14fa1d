"""Records of predicted time: of a step or a token, and of a whole run."""

from __future__ import annotations

from collections.abc import Mapping

from gpuready.model.record import Record, field


class TimePrediction(Record):
    """How long a step takes on one GPU, or the first and every later token; seconds everywhere."""

    step_seconds: float | None = None
    prefill_seconds: float | None = None
    decode_seconds: float | None = None  # one token of the whole batch
    tokens_per_second: float = 0.0  # of all GPUs of the job
    mfu: float | None = None  # operations of the model a second, as a share of the GPU's peak
    bound_by: str = ""  # matmul, memory, launches or communication
    range: tuple[float, float] = (0.0, 0.0)  # of the step, or of a later token
    parts: Mapping[str, float] = field(default_factory=dict)
    source: str = ""  # what the rates of the GPU come from
    notes: tuple[str, ...] = ()
    steps: int | None = None  # of the whole run, where the job states them
    run_seconds: float | None = None


def format_time_span(seconds: float) -> str:
    """``41.2 ms``, ``3.4 s``, ``12 min``, ``5 h 10 min``, ``3 days 4 h``"""
    if seconds < 1:
        return f"{seconds * 1e3:.3g} ms"
    if seconds < 120:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {rest} min"
    return f"{hours // 24} days {hours % 24} h"
