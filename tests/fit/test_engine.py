"""Predictions against measurements of real runs on an H200, and what the engine refuses."""

from __future__ import annotations

import json
import statistics
from pathlib import Path

import pytest

from gpuready.fit import H200, FitJob, FitUndecided, GpuCard, predict_memory
from gpuready.fit.job.gpu_candidates import judge_gpu
from gpuready.fit.job.model_parser import parse_model_config
from gpuready.fit.job.model_shape import MODEL_FAMILIES
from gpuready.fit.search import prediction, traced_prediction
from gpuready.fit.tape.training import TrainingRun
from gpuready.model.fit import GpuCandidate

DATA = json.loads(Path(__file__).with_name("measured.json").read_text(encoding="utf-8"))
CASES = DATA["cases"]
SMALL = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1024,
}  # fmt: skip
GIB = 1 << 30


def job_of(case: dict) -> FitJob:
    fields = {k: tuple(v) if isinstance(v, list) else v for k, v in case["job"].items()}
    return FitJob(model=DATA["models"][case["model"]], **fields)


def small(**fields) -> FitJob:
    return FitJob(**{"model": SMALL, "micro_batch": 2, "seq": 512, **fields})


def judged(fit, memory: int = H200.memory, held: int = 0) -> str:
    return judge_gpu(GpuCandidate("", "9.0", (memory, memory), held), fit).verdict


@pytest.fixture(scope="module")
def fits():
    return {case["id"]: predict_memory(job_of(case), H200, search=False) for case in CASES}


def errors(fits, field):
    return {
        case["id"]: abs(getattr(fits[case["id"]], f"peak_{field}") / case[field] - 1)
        for case in CASES
        if case["status"] == "ok"
    }


def test_allocated_is_exact(fits):
    found = errors(fits, "allocated")
    assert statistics.median(found.values()) <= 0.001
    assert max(found.values()) <= 0.02, max(found, key=found.get)


def test_reserved_is_nearly_exact(fits):
    found = errors(fits, "reserved")
    assert statistics.median(found.values()) <= 0.002
    assert max(found.values()) <= 0.04, max(found, key=found.get)


@pytest.mark.parametrize("case", [c for c in CASES if "outside" in c], ids=lambda c: c["id"])
def test_overhead_band_holds(fits, case):
    low, high = fits[case["id"]].overhead
    assert low <= case["outside"] <= high


@pytest.mark.parametrize("case", [c for c in CASES if c.get("caps")], ids=lambda c: c["id"])
def test_minimum_lies_between_survival_and_death(case):
    fit = predict_memory(job_of(case), H200)
    assert fit.peak_allocated <= fit.minimum <= fit.peak_reserved
    for cap, survived in case["caps"]:
        assert survived == (fit.minimum <= cap), cap


@pytest.mark.parametrize("case", [c for c in CASES if c["status"] == "oom"], ids=lambda c: c["id"])
def test_deaths_are_called(case):
    assert judged(predict_memory(job_of(case), H200)) == "does not fit"


def test_parts_add_up_to_the_peak():
    fit = predict_memory(small(), H200)
    assert sum(fit.parts.values()) == pytest.approx(fit.peak_allocated, rel=0.02)
    assert max(fit.phases.values()) == fit.peak_allocated
    assert {"parameters", "optimizer", "activations"} <= set(fit.parts)
    assert fit.peak_at[0] in {"forward", "backward", "optimizer step"}


def test_prediction_is_the_same_every_time():
    assert predict_memory(small(), H200) == predict_memory(small(), H200)


def test_verdict_has_a_band():
    card = GpuCard("NVIDIA A100", "8.0", 40 * GIB)
    fit = predict_memory(small(), card)
    low, high = fit.overhead
    assert low < high
    assert judged(fit, fit.minimum + high) == "fits"
    assert judged(fit, fit.minimum + low - 1) == "does not fit"
    assert judged(fit, fit.minimum + low) == "undecided"
    assert judged(fit, fit.minimum + high, GIB) == "does not fit"


def test_grouped_heads_fall_to_the_slow_kernel_without_a_fused_one():
    """fp32, or a card before Ampere, with grouped heads: torch writes out every score."""
    fused = predict_memory(small(seq=2048), H200, search=False)
    turing = predict_memory(small(seq=2048, precision="fp16"), GpuCard("T4", "7.5", 16 * GIB), search=False)
    assert turing.peak_allocated > 1.5 * fused.peak_allocated


@pytest.mark.parametrize(
    "change",
    [
        {"checkpointing": "nonreentrant"}, {"checkpointing": "reentrant"}, {"loss": "fused"}, {"method": "lora"},
        {"optimizer": "adamw_8bit"}, {"optimizer": "sgd"}, {"optimizer": "adafactor"}, {"seq": 256}, {"micro_batch": 1},
        {"world": 64, "zero": 3, "layers": 32}, {"world": 4, "fsdp": True}, {"offload": "optimizer", "zero": 2, "layers": 32}, {"tensor_parallel": 2},
    ],
    ids=str,
)  # fmt: skip
def test_what_saves_memory_saves_memory(change):
    """ZeRO's bucket is larger than a small model, so that it needs more layers to be worth it."""
    change = dict(change)
    model = {
        **SMALL,
        "hidden_size": 1024,
        "intermediate_size": 4096,
        "num_hidden_layers": change.pop("layers", 6),
        "vocab_size": 8192,
    }
    before = predict_memory(small(model=model, seq=1024), H200, search=False)
    after = predict_memory(small(model=model, **{"seq": 1024, **change}), H200, search=False)
    assert after.peak_allocated < before.peak_allocated


@pytest.mark.parametrize(
    "change",
    [
        {"dpo": True}, {"padded": True}, {"attention": "eager"}, {"keep_outputs": True}, {"precision": "fp32"},
        {"method": "qlora"}, {"quant": "int8", "method": "lora"}, {"attention": "flash"},
        {"method": "qlora", "kbit": True, "quant": "nf4", "autocast": "bf16", "loop": "trainer"}, {"loss": "liger"},
        {"optimizer": "paged_adamw_8bit"}, {"precision": "amp-fp16"}, {"task": "generate"}, {"accumulation": 3},
        {"task": "generate", "cache": "static"}, {"world": 8}, {"world": 8, "zero": 1}, {"world": 8, "zero": 2},
        {"alloc_conf": "expandable_segments:True"}, {"method": "lora", "dpo": True, "checkpointing": "nonreentrant"},
        {"offload": "activations", "checkpointing": "nonreentrant"}, {"optimizer": "adamw_forloop"},
    ],
    ids=str,
)  # fmt: skip
def test_every_set_up_answers(change):
    fit = predict_memory(small(**change), H200)
    assert 0 < fit.peak_allocated <= fit.minimum <= fit.peak_reserved < fit.peak_device


@pytest.mark.parametrize("family", MODEL_FAMILIES)
def test_every_family_answers(family):
    config = {**SMALL, "model_type": family}
    if family == "gpt2":
        config = {"model_type": "gpt2", "n_embd": 256, "n_layer": 3, "n_head": 4, "vocab_size": 1024}
    for job in (
        small(model=config),
        small(model=config, method="lora", lora_targets="qv"),
        small(model=config, task="generate"),
    ):
        assert predict_memory(job, H200, search=False).peak_allocated > 0


def test_adapters_on_every_layer_reach_the_experts_as_peft_has_it():
    """The router, both stacks of every expert (the fused one at twice the rank) and the attention; Qwen 2's only the shared expert."""
    config = {**SMALL, "num_local_experts": 4, "num_experts": 4, "moe_intermediate_size": 64}
    experts, hidden, inner, kv, rank = 4, 256, 512, 128, 16
    attention = rank * (4 * 2 * hidden + 2 * (kv - hidden))
    beside = (hidden + experts) + 2 * experts * (hidden + 2 * inner) + experts * (inner + hidden)
    result = small(model={**config, "model_type": "mixtral"}, method="lora", lora_r=rank)
    trained = TrainingRun(result.validate_fields(), H200).maker.trained
    assert sum(t.numel for t in trained) == SMALL["num_hidden_layers"] * (attention + rank * beside)
    alone = small(model={**config, "model_type": "qwen2_moe"}, method="lora")
    assert not any(layer.adapters for layer in TrainingRun(alone.validate_fields(), H200).model.layers)


@pytest.mark.parametrize(("family", "words"), [("mixtral", "refuses"), ("llama", "DoRA.*--trace")])
def test_dora_is_traced_and_undecided_on_experts_since_peft_refuses_it(family, words):
    with pytest.raises(FitUndecided, match=words):
        predict_memory(small(model={**SMALL, "model_type": family}, method="lora", dora=True), H200)


def test_a_window_bounds_a_growing_cache():
    """With a sliding window the cache of a long answer is no longer than the window."""
    narrow = {**SMALL, "model_type": "mistral", "sliding_window": 128}
    sizes = []
    for model in (narrow, {**narrow, "sliding_window": None}):
        tape = prediction.record_job_tape(
            small(model=model, task="generate", seq=2048, new_tokens=64).validate_fields(), H200
        )
        sizes.append([e for e, kind in zip(births(tape), tape.kinds, strict=True) if kind == "cache"][-1])
    assert sizes == [2 * 2 * 128 * 64 * 2, 2 * 2 * (2048 + 63) * 64 * 2]


def births(tape):
    return [e for e in tape.events if isinstance(e, int) and e >= 0]


def test_what_needs_nothing_kept_runs_before_a_recomputation():
    """The fp32 gradients at the end of an adapted layer are there while the layer is recomputed (fit_tape_diff.py found it)."""
    job = small(method="lora", checkpointing="nonreentrant", loss="fused").validate_fields()
    tape = prediction.record_job_tape(job, H200)
    ops = tape.ops
    first = next(n for n, op in enumerate(ops) if op == "fused loss")
    after = [op for op in ops[first:] if op != "fused loss"]
    assert after.index("mul") < after.index("attention")


def trace():
    events = [4096, 8192, "build", 1 << 20, "fwd0", 4096, ~2, "bwd0", "step0", ~3, "zero0"]
    return {"events": events, "parameters": [[[32, 64], 2]], "versions": {"torch": "2.13.0"}}


def test_a_trace_is_replayed_with_the_optimizer():
    fit = traced_prediction.predict_traced(small(), H200, traced_prediction.validate_trace(trace()), search=False)
    assert {"fwd0", "bwd0", "clip0", "opt0", "zero0"} <= set(fit.phases)
    assert fit.phases["opt0"] >= fit.phases["bwd0"] - (1 << 20) + 3 * 4096  # two of state, one of passage
    assert fit.versions == {"torch": "2.13.0"}


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        [],
        {"events": []},
        {**trace(), "events": [~0]},
        {**trace(), "events": [True]},
        {**trace(), "parameters": [3]},
        {**trace(), "events": [4096, "\x1b[2J"]},
        {**trace(), "events": [4096, "=nothing"]},
        {**trace(), "gradients": [99]},
        {**trace(), "gradients": 3},
        {**trace(), "by": [0], "names": ["mm"]},
        {**trace(), "by": [True] * 4, "names": ["mm", "add"]},
        {**trace(), "versions": {"torch": 2}},
    ],
)
def test_a_trace_that_is_none_is_refused(wrong):
    with pytest.raises(ValueError, match="trace"):
        traced_prediction.validate_trace(wrong)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"zero": 2, "world": 8}, "ZeRO"),
        ({"method": "lora", "quant": "int8"}, "a base in int8"),
        ({"method": "qlora", "dora": True}, "under DoRA"),
        ({"attention": "flash"}, "flash-attn"),
        ({"method": "lora", "task": "generate"}, "adapters in generation"),
        ({"task": "generate", "new_tokens": 4000}, "more than 256 tokens"),
        ({"method": "lora", "lora_dtype": "fp16"}, "adapters in fp16 over weights in bf16"),
    ],
)
def test_a_trace_knows_its_limits(fields, words):
    """Whatever it would count wrong it does not count, in one sentence."""
    with pytest.raises(FitUndecided, match=words):
        traced_prediction.build_trace_request(small(**fields).validate_fields(), H200)


def test_deepspeed_turns_adapters_to_the_precision_of_the_job():
    assert small(method="lora", world=2, zero=2).validate_fields().lora_dtype == "bf16"
    assert small(method="lora", world=2).validate_fields().lora_dtype == "fp32"


def test_what_deepspeed_frees_while_it_sets_up_stays_cached():
    """It empties the cache before it flattens the weights, and not after: the old ones are there to be taken again."""
    tape = prediction.record_job_tape(small(world=8, zero=2).validate_fields(), H200)
    marks = [e for e in tape.events if isinstance(e, str)]
    assert marks[:2] == ["load", "build"]
    begun = tape.events.index("load")
    weights = sum(e for e in tape.events[:begun] if e >= 0)
    assert sum(1 for e in tape.events[begun : tape.events.index("build")] if e == weights) == 1


def test_weights_that_stay_after_the_forward_cost_all_of_them():
    settings = {"world": 4, "fsdp": True, "micro_batch": 1, "seq": 64}
    kept, gone = (
        predict_memory(small(**settings, reshard=r), H200, search=False).phases["fwd1"] for r in (False, True)
    )
    assert kept > gone


def test_a_share_of_the_weights():
    """Under FSDP a rank holds its part of weights, gradients and state; whole layers come and go."""
    job = small(world=4, fsdp=True, optimizer="adamw_fused", micro_batch=1, seq=64)
    parts = predict_memory(job, H200, search=False).parts
    alone = predict_memory(small(optimizer="adamw_fused", micro_batch=1, seq=64), H200, search=False).parts
    assert parts["parameters"] == pytest.approx(alone["parameters"] / 4, rel=0.02)
    assert parts["optimizer"] == pytest.approx(alone["optimizer"] / 4, rel=0.02)


def test_shares_that_wait_on_the_host_are_not_on_the_gpu():
    """FSDP with offloaded parameters: shares come for a gather alone, and gradients leave when they are reduced."""
    settings = {"world": 4, "fsdp": True, "optimizer": "adamw_fused", "micro_batch": 1, "seq": 64}
    here, there = (predict_memory(small(**settings, offload=o), H200, search=False) for o in ("", "parameters"))
    assert "parameters" in here.parts and "optimizer" in here.parts
    assert not {"parameters", "optimizer", "gradients"} & set(there.parts)
    assert there.phases["zero1"] - (64 << 20) < 4096  # cuBLAS has its workspaces, and there is the batch


def test_zero_3_steps_over_sub_groups_of_the_size_that_is_said():
    job = small(world=4, zero=3)
    whole, cut = (births_of(job.replace(sub_group=n), "master weights") for n in (10**9, 100_000))
    assert len(cut) > len(whole) and max(cut) < max(whole)


def births_of(job, op):
    tape = prediction.record_job_tape(job.validate_fields(), H200)
    sizes = [event for event in tape.events if not isinstance(event, str) and event >= 0]
    return [size for size, made_by in zip(sizes, tape.ops, strict=True) if made_by == op]


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({"precision": "int3"}, "precision"),
        ({"quant": "nf5"}, "quant must be one of nf4, fp4, int8 or nothing, not 'nf5'"),
        ({"micro_batch": 0}, "micro_batch"),
        ({"seq": -5}, "seq"),
        ({"seq": 2.5}, "seq"),
        ({"optimizer": "lion9"}, "optimizer"),
        ({"quant": "nf4"}, "quantised"),
        ({"alloc_conf": "max_split_size_mb:x"}, "max_split_size_mb"),
        ({"model": {**SMALL, "hidden_size": None}}, "hidden_size"),
        ({"model": {**SMALL, "num_hidden_layers": 10**6}}, "num_hidden_layers"),
        ({"model": {**SMALL, "vocab_size": "many"}}, "vocab_size"),
        ({"model": {**SMALL, "num_key_value_heads": 3}}, "key/value"),
        ({"model": {**SMALL, "hidden_act": "geloo"}}, "hidden_act must be an activation that transformers has"),
        ({"model": {**SMALL, "hidden_act": 7}}, "hidden_act"),
        ({"model": {**SMALL, "hidden_act": "laplace"}}, "the activation laplace"),
        ({"model": {**SMALL, "model_type": "mistral", "sliding_window": "4096"}}, "sliding_window must be"),
        ({"model": {**SMALL, "layer_types": ["full_attention"]}}, "layer_types names 1 layers, and there are"),
        ({"model": {**SMALL, "layer_types": "all"}}, "layer_types must be a list"),
        ({"model": {**SMALL, "layer_types": ["linear_attention"] * 64}}, "layer_types"),
        ({"model": []}, "config"),
    ],
)
def test_nonsense_is_named(fields, word):
    with pytest.raises(ValueError, match=word):
        predict_memory(small(**fields), H200)


@pytest.mark.parametrize("config", [{}, {"model_type": "jamba"}, {**SMALL, "model_type": "rwkv"}])
def test_an_unknown_architecture_is_undecided(config):
    with pytest.raises(FitUndecided, match=r"model_type|architecture|are not written down here"):
        predict_memory(small(model=config), H200)


def test_a_model_of_a_trillion_parameters_gets_an_answer():
    model = {
        **SMALL, "hidden_size": 24576, "intermediate_size": 98304, "num_hidden_layers": 128, "num_attention_heads": 192,
        "num_key_value_heads": 8, "vocab_size": 256000,
    }  # fmt: skip
    fit = predict_memory(small(model=model, checkpointing="nonreentrant"), H200, search=False)
    assert fit.parts["parameters"] > 10**12
    assert judged(fit) == "does not fit"


def test_defaults_of_configs_are_those_of_transformers():
    assert (
        parse_model_config(
            {**SMALL, "model_type": "mistral", "num_key_value_heads": None, "num_attention_heads": 32}
        ).kv_heads
        == 8
    )
    assert parse_model_config({**SMALL, "model_type": "gemma"}).tied
    assert parse_model_config({**SMALL, "model_type": "gemma2"}).windows == (4096, 0, 4096)
    assert parse_model_config({"text_config": {**SMALL, "model_type": "gemma3_text"}}).qk_norm


def test_a_language_model_is_not_taken_for_the_whole_of_a_model_that_sees():
    """InternVL without its vision tower was 14 % too low."""
    whole = {"text_config": {**SMALL, "model_type": "qwen2"}, "vision_config": {"hidden_size": 1024}}
    with pytest.raises(FitUndecided, match="vision_config has layers that are not known here"):
        parse_model_config(whole)
    assert parse_model_config({**whole, "vision_config": None}).family == "qwen2"
