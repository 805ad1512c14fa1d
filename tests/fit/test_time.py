"""The time of a step and of a token: against an H200, and by its own laws."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from pathlib import Path

import pytest
from benchmarks.step_time import make_job, read_measured, read_pace, seconds_of
from benchmarks.step_time_cases import MODELS

from gpuready.catalog.gpus import find_gpu
from gpuready.commands.fit import FIT, fit
from gpuready.fit import H200, FitJob
from gpuready.fit.job.known_models import find_model_config
from gpuready.fit.search.prediction import cached_job_tape
from gpuready.fit.time import device_speed
from gpuready.fit.time.device_speed import (
    REAL_SHARES,
    LayerCounts,
    calibrate_speed,
    count_layers_of_job,
    default_pace,
    speed_from_row,
)
from gpuready.fit.time.kernel_time import kernel_seconds
from gpuready.fit.time.prediction import predict_time, training_phases
from gpuready.model.fit import format_time_span
from gpuready.workflow.fit_time import note_new_lengths, read_bench_record

MEASURED = Path(__file__).parents[2] / "benchmarks/results/step-time-h200.json"
CASES, MEASURES = read_measured(str(MEASURED), None)
SHEET = speed_from_row(find_gpu("h200"))
SPEED = calibrate_speed(SHEET, MEASURES)
LLAMA = find_model_config("llama-3.2-1b")


def step(**fields):
    return predict_time(FitJob(model=LLAMA, **fields), H200, SPEED)


@pytest.mark.parametrize("name", ["N01", "N05", "N10", "N12", "N19", "N21", "N24", "N27", "N29"])
def test_steps_of_an_h200(name):
    case = next(one for one in CASES if one["id"] == name)
    found = predict_time(make_job(case), H200, SPEED)
    assert abs(seconds_of(found) / case["step_s"] - 1) <= 0.15
    assert found.range[0] <= found.step_seconds <= found.range[1]


def test_the_parts_make_up_the_step_and_no_share_exceeds_the_peak():
    found = step(micro_batch=4)
    assert sum(found.parts.values()) == pytest.approx(found.step_seconds)
    assert 0.2 < found.mfu < 1 and found.tokens_per_second == pytest.approx(4 * 2048 / found.step_seconds)


def test_more_work_takes_longer_and_a_large_batch_is_more_efficient():
    small, large = step(micro_batch=1), step(micro_batch=8)
    assert small.step_seconds < large.step_seconds < 8 * small.step_seconds
    assert step(checkpointing="nonreentrant", micro_batch=8).step_seconds > 1.2 * large.step_seconds
    assert step(optimizer="adamw_fused").parts["optimizer"] < step().parts["optimizer"]
    assert step(accumulation=4).step_seconds == pytest.approx(4 * step().step_seconds, rel=0.25)


def test_a_tiny_step_waits_for_the_host_and_a_slow_host_makes_it_longer():
    tiny = {"micro_batch": 1, "seq": 32}
    assert step(**tiny).bound_by == "launches"
    slow = predict_time(FitJob(model=LLAMA, **tiny), H200, SPEED.replace(pace=default_pace(2 * SPEED.pace.launch)))
    assert slow.step_seconds == pytest.approx(2 * step(**tiny).step_seconds, rel=0.2)
    assert step(micro_batch=8).bound_by == "matmul"


def count_kernels(model, **fields):
    job = FitJob(model=model, precision="bf16", **fields).validate_fields()
    found = Counter()
    for name, kernels in training_phases(cached_job_tape(job, H200), job):
        found.update(kernels if name in ("fwd", "bwd") else ())
    return found


@pytest.mark.parametrize(("back", "measured"), [("attention", 872.7e-6), ("attention backward", 2671e-6)])
def test_a_mask_costs_cudnn_more_than_the_other_half_of_the_scores(back, measured):
    """36 heads of 128 over 4096 tokens of starcoder2_7b, by the profile on the H200."""
    speed = SPEED.replace(matmul_16bit=848.2e12)
    sizes = ("cudnn", 1, 36, 4096, 4096, 128, 2)
    masked, plain = (kernel_seconds((back, *sizes, mask, 37748736), speed) for mask in (1, 0))
    assert masked == pytest.approx(measured, rel=0.06) and masked > 2.5 * plain


def test_experts_with_adapters_are_folded_twice_in_a_pass():
    """Each time the weights are copied and added to: 348 and 570 us for 64 experts of deepseek_v2_lite on the H200."""
    kind, config = MODELS["qwen3moe_s"]
    model = {"model_type": kind, **config}
    moved = 2 * 2 * 32 * 2 * 768 * 2048  # the stack of gate and up, read and written
    adapted, plain = (count_kernels(model, seq=64, method=method, lora_r=8) for method in ("lora", "full"))
    assert adapted["added matmul", moved] == 2 * config["num_hidden_layers"] and not plain["added matmul", moved]
    assert kernel_seconds(("added matmul", 2 * 2 * 64 * 2816 * 2048), SPEED) == pytest.approx(570e-6, rel=0.05)


def test_rows_of_experts_are_masked_in_a_copy():
    kind, config = MODELS["qwen3moe_s"]
    found = count_kernels({"model_type": kind, **config}, micro_batch=1, seq=64)
    rows = 64 * config["num_experts_per_tok"]
    copied = 2 * 2 * rows * 2048
    assert found["move", copied] >= 3 * config["num_hidden_layers"], "one forward, two backward"


def test_an_odd_vocabulary_costs_the_aligned_kernels():
    unaligned = predict_time(FitJob(model={**LLAMA, "vocab_size": LLAMA["vocab_size"] + 1}, micro_batch=4), H200, SPEED)
    assert unaligned.step_seconds > 1.2 * step(micro_batch=4).step_seconds


def test_ranks_that_wait_for_a_slow_link():
    near = predict_time(FitJob(model=LLAMA, world=8), H200, SPEED)
    far = predict_time(FitJob(model=LLAMA, world=8), H200, SPEED.replace(link=5e9))
    assert "communication" in near.parts and far.bound_by == "communication"
    assert far.step_seconds > 2 * near.step_seconds
    sharded = predict_time(FitJob(model=LLAMA, world=8, fsdp=True), H200, SPEED)
    assert sharded.tokens_per_second > 4 * step().tokens_per_second


def test_generation_has_a_first_and_later_tokens():
    found = predict_time(FitJob(model=LLAMA, task="generate", new_tokens=64, micro_batch=4), H200, SPEED)
    assert found.step_seconds is None and 0 < found.decode_seconds < 1 and found.prefill_seconds > 0
    assert found.tokens_per_second == pytest.approx(4 / found.decode_seconds)


@pytest.mark.parametrize(
    ("capability", "changes", "reported"),
    [
        ("9.0", {}, True),
        ("10.0", {}, True),
        ("8.0", {}, False),
        ("12.0", {}, False),
        ("9.0", {"attention": "flash"}, False),
        ("9.0", {"cache": "static"}, False),
        ("9.0", {"precision": "fp32"}, False),
        ("9.0", {"task": "train"}, False),
    ],
)
def test_first_answers_build_a_plan_for_each_length_where_cudnn_is_preferred(capability, changes, reported):
    job = FitJob(model=LLAMA, **{"task": "generate", "precision": "bf16", **changes})
    notes = note_new_lengths(job, capability)
    assert any("TORCH_CUDNN_SDPA_DEPRIORITIZED=1" in note for note in notes) is reported


def test_the_answer_for_generation_has_the_note():
    data = json.loads(fit("llama-3.2-1b", on="h200", task="generate").json())
    assert any("cuDNN plan" in note for note in data["notes"])
    assert not any("cuDNN plan" in note for note in json.loads(fit("llama-3.2-1b", on="h200").json())["notes"])


EAGER = {"forward": 4e-4, "backward": 6e-4, "decode": 3e-4, "call": 1e-3, "token": 2e-3}


def test_a_record_with_the_hosts_pace_decides_steps_and_tokens_that_wait_for_the_host():
    record = {**MEASURES, **{f"eager-{name}": value for name, value in EAGER.items()}}
    fast = calibrate_speed(SHEET, record)
    assert fast.pace.measured and fast.pace.decode == REAL_SHARES["decode"] * 3e-4 and not SPEED.pace.measured
    answer = FitJob(model=LLAMA, task="generate", new_tokens=8)
    layers = LLAMA["num_hidden_layers"]
    token = predict_time(answer, H200, fast).decode_seconds
    assert (
        token == pytest.approx(2e-3 + layers * 3e-4, rel=0.15)
        and token < predict_time(answer, H200, SPEED).decode_seconds / 1.5
    )
    tiny = predict_time(FitJob(model=LLAMA, seq=32), H200, fast)
    assert tiny.parts["forward"] == pytest.approx(1e-3 + REAL_SHARES["forward"] * layers * 4e-4, rel=0.15)
    assert tiny.parts["backward"] == pytest.approx(0.77e-3 + REAL_SHARES["backward"] * layers * 6e-4, rel=0.25)
    large = FitJob(model=LLAMA, micro_batch=8)
    assert predict_time(large, H200, fast).step_seconds == pytest.approx(
        predict_time(large, H200, SPEED).step_seconds, rel=0.02
    )


def write_record(path, passes):
    rows = [{"name": name, "value": value} for name, value in MEASURES.items()]
    rows += [
        {"name": f"eager-{name}", "value": one, "passes": [one * x for x in passes]} for name, one in EAGER.items()
    ]
    path.write_text(json.dumps({"kind": "bench", "measures": rows}))
    return read_bench_record(str(path))[0]


def test_cores_that_differ_widen_the_range_of_what_waits_for_the_host_and_of_nothing_else(tmp_path):
    even = calibrate_speed(SHEET, write_record(tmp_path / "even.json", [1.0] * 20))
    uneven = calibrate_speed(SHEET, write_record(tmp_path / "uneven.json", [0.7, 1.3] * 10))
    few = calibrate_speed(SHEET, write_record(tmp_path / "few.json", [0.7, 1.3]))
    assert uneven.pace.forward == pytest.approx(even.pace.forward) and few.pace.range == device_speed.HOST_RANGE
    tiny, large = FitJob(model=LLAMA, seq=32, optimizer="sgd"), FitJob(model=LLAMA, micro_batch=8)
    for job, wider in ((tiny, True), (large, False)):
        (one, other) = (predict_time(job, H200, speed) for speed in (even, uneven))
        assert one.step_seconds == pytest.approx(other.step_seconds)
        assert (other.range[1] - other.range[0] > 1.5 * (one.range[1] - one.range[0])) is wider
    waits = predict_time(tiny, H200, uneven)
    assert waits.range[0] < 0.75 * waits.step_seconds and waits.range[1] > 1.25 * waits.step_seconds


def test_a_record_that_lacks_one_pace_is_not_mixed_with_another_host():
    half = {**MEASURES, "eager-forward": 4e-4, "eager-backward": 6e-4}
    assert calibrate_speed(SHEET, half).pace == SPEED.pace


def test_a_checkpointed_backward_pass_runs_the_forward_pass_of_the_host_again():
    pace, twelve = default_pace(), LayerCounts(12)
    plain, again = pace.pass_seconds("bwd", 1000, twelve), pace.pass_seconds("bwd", 1500, twelve, 500)
    assert plain < again and again - plain > 0.8 * pace.pass_seconds("fwd", 500, twelve)


def test_what_the_host_does_before_the_first_layer_is_not_hidden_behind_the_gpu():
    slow = SPEED.replace(pace=SPEED.pace.replace(call=SPEED.pace.call + 0.01))
    large = FitJob(model=LLAMA, micro_batch=8)
    assert predict_time(large, H200, slow).step_seconds - step(micro_batch=8).step_seconds == pytest.approx(
        0.01, rel=0.1
    )


def test_the_shares_of_experts_adapters_and_checkpoints_are_those_that_were_measured():
    from benchmarks.eager_pace import learn_shares

    found = learn_shares(str(MEASURED.with_name("eager-pace-h200.json")))
    for kept, group in (
        (device_speed.EXPERT_LAYERS, "experts"),
        (device_speed.ADAPTER_LAYERS, "adapters"),
        (device_speed.CHECKPOINT_LAYERS, "checkpoints"),
    ):
        for mark in set(kept) - ({"decode"} if group == "adapters" else set()):  # adapters are not generated with here
            assert found[group][mark] == pytest.approx(kept[mark], abs=0.03)


MANY_CORES = MEASURED.with_name("step-time-dev-h200.json")


def test_cases_that_wait_for_the_host_by_a_record_of_many_cores():
    cases, measures = read_measured(str(MANY_CORES), None)
    speed = calibrate_speed(SHEET, {**measures, **read_pace(str(MANY_CORES))})
    found, outside = {"train": [], "generate": [0.0]}, 0
    for case in cases:
        measured = case.get("step_s") or case["decode_s"]
        time = predict_time(make_job(case), H200, speed)
        found[case["kind"]].append(abs(seconds_of(time) / measured - 1))
        outside += not time.range[0] <= measured <= time.range[1]
    assert statistics.median(found["train"]) <= 0.07 and max(found["train"]) <= 0.18
    assert max(found["generate"]) <= 0.0 and outside <= 0.11 * len(cases)


def test_the_layers_of_configs_inside_of_a_config_count():
    nested = {
        "text_config": {"num_hidden_layers": 30},
        "vision_config": {"depth": 2},
        "quantization_config": {"bits": 4},
    }
    found = [count_layers_of_job(model).layers for model in (nested, {"n_layer": 12}, {})]
    assert found == [32, 12, 1]
    assert count_layers_of_job({"num_hidden_layers": 4, "num_experts": 8}) == LayerCounts(4, 4)
    assert count_layers_of_job({"num_hidden_layers": 4, "num_experts": 0}) == LayerCounts(4)


def test_without_a_record_the_range_is_wider():
    measured, sheet = step(micro_batch=4), predict_time(FitJob(model=LLAMA, micro_batch=4), H200, SHEET)
    assert sheet.range[1] - sheet.range[0] > measured.range[1] - measured.range[0]


def test_the_command_answers_time_by_default_and_not_with_no_time():
    data = json.loads(fit("llama-3.2-1b", on="h200", run_steps=100).json())
    time = data["time"]
    assert set(time) >= {
        "step_seconds",
        "prefill_seconds",
        "decode_seconds",
        "tokens_per_second",
        "mfu",
        "bound_by",
        "range",
        "parts",
    }
    assert time["run_seconds"] == pytest.approx(100 * time["step_seconds"])
    assert json.loads(fit("llama-3.2-1b", on="h200", time=False).json())["time"] is None
    assert FIT.parameters["time"].flag == "--no-time"


def test_prices_order_the_gpus(tmp_path):
    data = json.loads(fit("llama-3.2-1b", gpus=True, price=["h100=2.5", "l40s=0.2"]).json())
    priced = [place for place in data["gpus"] if place["usd"] is not None]
    assert [place["usd"] for place in priced] == sorted(place["usd"] for place in priced) and len(priced) >= 2
    assert data["gpus"][0]["name"] == "NVIDIA L40S"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"price": ["h100"]}, "--price takes NAME=USD"),
        ({"price": ["pocket=1"]}, "no GPU of the catalogue is called pocket"),
        ({"bench": "{tmp}/text"}, "is not JSON"),
        ({"bench": "{tmp}/other.json"}, "is no record of `gpuready bench`"),
        ({"bench": "{tmp}/empty.json"}, "has no matrix products"),
        ({"bench": "{tmp}/missing"}, "does not exist"),
        ({"time": False, "samples": 3}, "does not go with --no-time"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(tmp_path, settings, words):
    (tmp_path / "text").write_text("no")
    (tmp_path / "other.json").write_text("[1]")
    (tmp_path / "empty.json").write_text('{"kind": "bench", "measures": [{"name": "disk", "value": 1}]}')
    settings = {
        key: value.replace("{tmp}", str(tmp_path)) if isinstance(value, str) else value
        for key, value in settings.items()
    }
    with pytest.raises(Exception, match=words):
        fit("llama-3.2-1b", on="h200", **settings)


def test_a_job_file_states_the_length_of_the_run(tmp_path):
    path = tmp_path / "axolotl.yml"
    path.write_text(
        "base_model: llama-3.2-1b\nsequence_len: 1024\nmicro_batch_size: 2\nmax_steps: 50\nadapter: lora\nlora_r: 8\n"
    )
    data = json.loads(fit(str(path), on="h200").json())
    assert data["time"]["steps"] == 50


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0412, "41.2 ms"), (3.4, "3.4 s"), (720, "12 min"), (18600, "5 h 10 min"), (274000, "3 days 4 h")],
)
def test_seconds_in_words(seconds, text):
    assert format_time_span(seconds) == text


def test_the_report_shows_memory_and_time_side_by_side(tmp_path):
    from gpuready.commands.report import report

    page = report("transformers", on="h200", fit=["llama-3.2-1b"]).html()
    assert "tokens a second. Bound by" in page and "tokens/s" in page


def test_a_gpu_whose_rates_are_not_known_is_said(monkeypatch):
    from gpuready.workflow import fit_time

    monkeypatch.setattr(fit_time, "speed_from_row", lambda row: None)
    data = json.loads(fit("llama-3.2-1b", on="h200").json())
    assert data["time"] is None and any("the rates of NVIDIA H200 are not known" in note for note in data["notes"])
