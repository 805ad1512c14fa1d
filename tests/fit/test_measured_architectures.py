"""Further architectures against an H200: three steps of bf16 training with torch's AdamW, transformers 5.17."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuready.fit import H200, FitJob, predict_memory
from gpuready.fit.job.model_parser import parse_model_config
from gpuready.fit.job.parameter_counts import count_parameters

ROWS = json.loads(Path(__file__).with_name("measured_architectures.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["config"]["model_type"])
def test_prediction_is_what_was_measured(row):
    job = FitJob(model=row["config"], micro_batch=row["micro_batch"], seq=row["seq"], steps=3, clip=False)
    fit = predict_memory(job, H200, search=False)
    assert count_parameters(parse_model_config(row["config"])) == row["parameters"]
    assert fit.peak_allocated == pytest.approx(row["allocated"], rel=0.001)
    assert fit.peak_reserved == pytest.approx(row["reserved"], rel=0.015)
