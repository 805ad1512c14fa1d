"""``gpuready bench --job``: what is compared, what is refused, and the screen. The steps themselves: test_trace, on a CPU."""

from __future__ import annotations

import json

import pytest

from gpuready.fit import FitJob
from gpuready.fit.job.known_models import find_model_config
from gpuready.model.bench import JobBench
from gpuready.model.fit import TimePrediction
from gpuready.render import bench
from gpuready.render.layout import Screen
from gpuready.workflow import bench_job
from gpuready.workflow.refusal import Refused

JOB = FitJob(model=find_model_config("llama-3.2-1b"))
GIB = 1 << 30


def make_result(step: float) -> JobBench:
    time = TimePrediction(
        step_seconds=0.2, parts={"forward": 0.08, "backward": 0.1, "optimizer": 0.02}, bound_by="matmul"
    )
    measured = {"step": step, "forward": 0.08, "backward": step - 0.1, "optimizer": 0.02}
    return JobBench("axolotl.yml", "NVIDIA H200", {}, time, measured, 20 * GIB, 21 * GIB, "2.11.0")


def test_a_step_as_fast_as_predicted():
    result = make_result(0.21)
    text = bench.render_job_bench(result, Screen(80))
    assert result.exit == 0 and "as fast as predicted (200 ms; +5%)" in text and "+5.0%" in text
    assert json.loads(json.dumps(bench.job_bench_fields(result)))["ratio"] == pytest.approx(1.05)


def test_a_slow_step_is_named_and_ends_with_1():
    result = make_result(0.4)
    assert result.exit == 1 and "2.00 times the predicted 200 ms" in bench.format_job_bench_line(result)


@pytest.mark.parametrize(
    "fields", [{"method": "qlora", "quant": "nf4"}, {"world": 8, "fsdp": True}, {"dpo": True}, {"task": "generate"}]
)
def test_what_cannot_be_run_is_refused(fields):
    with pytest.raises(Refused, match="is not run"):
        bench_job.check_playable(JOB.replace(**fields))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no",
        "{}",
        '{"seconds": {"step": -1}, "peak_allocated": 0, "torch": "2"}',
        '{"seconds": [1], "peak_allocated": 0, "torch": ""}',
    ],
)
def test_a_report_that_is_none_is_refused(text):
    with pytest.raises(ValueError, match="the environment printed"):
        bench_job.read_report(text)


def test_without_a_gpu_it_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(bench_job, "find_gpus", lambda *_: [])
    path = tmp_path / "axolotl.yml"
    path.write_text("base_model: llama-3.2-1b\nmicro_batch_size: 1\nsequence_len: 64\nadapter: lora\nlora_r: 8\n")
    with pytest.raises(Refused, match="--job runs steps on a GPU"):
        bench_job.bench_job(str(path))
