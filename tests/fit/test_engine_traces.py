"""The tape against what real modules allocate (record_traces.py made the numbers)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuready.fit.job.records import H200, FitJob
from gpuready.fit.tape.training import TrainingRun

ROWS = json.loads(Path(__file__).with_name("traces.json").read_text(encoding="utf-8"))
TOLERANCE = 0.004


def played(row: dict, **fields) -> dict[str, list[int]]:
    """The peak of every phase and what lives after it, in bytes as asked for."""
    job = FitJob(
        model=row["config"],
        micro_batch=2,
        seq=48,
        precision="bf16" if row["half"] else "fp32",
        attention="eager",
        optimizer="sgd",
        clip=False,
        checkpointing="nonreentrant" if row["checkpointing"] else "none",
    ).replace(**fields)
    training = TrainingRun(job, H200)
    training.ops.workspace_size = training.ops.processors = 0  # a CPU has neither
    tape = training.record_tape()
    sizes: list[int] = []
    now = peak = 0
    found = {}
    for event in tape.events:
        if isinstance(event, str):
            found[event] = [peak, now]
            peak = now
        elif event >= 0:
            sizes.append(event)
            now += event
            peak = max(peak, now)
        else:
            now -= sizes[~event]
    return found


@pytest.mark.parametrize("row", ROWS, ids=lambda r: f"{r['config']['model_type']}-{r['half']}-{r['checkpointing']}")
def test_tape_matches_real_modules(row):
    found = played(row)
    assert found["build"][1] == pytest.approx(row["static"], rel=0.004, abs=4096)
    for phase in ("fwd0", "bwd0", "fwd1", "bwd1"):
        assert found[phase] == pytest.approx(row[phase], rel=TOLERANCE), phase
