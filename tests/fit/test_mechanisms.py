"""What the exams on the H200 taught: one test for each mechanism, and the measured case that showed it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpuready.fit import H200, FitJob, predict_memory
from gpuready.fit.search.prediction import record_job_tape
from gpuready.fit.tape import experts
from gpuready.fit.tape.autograd import Tape
from gpuready.fit.tape.torch_ops import TorchOps
from gpuready.fit.tape.zero12 import GATHER_STREAM, REDUCE_STREAM

EXAM = Path(__file__).resolve().parents[2] / "benchmarks" / "results" / "fit-exam-h200.jsonl"
SHOWN = {
    "M07": "torch's Adafactor goes parameter by parameter",
    "M37": "a sum down the columns has a buffer of its own",
    "E04": "Liger adds to the head's gradient where it lies",
    "M43": "gpt2 casts its attention weights back before it drops some",
    "M42": "the first pass of a checkpointed layer drops values too",
    "M52": "torch's fallback writes out even one head for all",
    "Q01": "small states of a paged optimizer stay on the GPU",
    "W31": "autocast keeps the head that Liger multiplies by",
}
GPT2 = {"model_type": "gpt2", "n_embd": 256, "n_layer": 3, "n_head": 4, "vocab_size": 1024, "n_positions": 256}
LLAMA = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 8192,
}  # fmt: skip


@pytest.fixture(scope="module")
def measured():
    lines = EXAM.read_text(encoding="utf-8").splitlines()
    return {row["id"]: row for row in map(json.loads, lines) if not row.get("cap")}


@pytest.mark.parametrize("name", ["W31", "W33"])
def test_every_phase_is_as_measured(measured, name):
    """Under autocast with Liger: the head is cast for each chunk and kept once; phi3's parts are copied before they are turned."""
    row = measured[name]
    phases = predict_memory(FitJob(model=row["config"], **row["job"]), H200, search=False).phases
    for phase in phases:
        assert phases[phase] == pytest.approx(row["phases"][phase][0], rel=0.001), phase


@pytest.mark.parametrize("name", SHOWN, ids=lambda name: f"{name} {SHOWN[name]}")
def test_it_is_as_measured(measured, name):
    row = measured[name]
    fit = predict_memory(FitJob(model=row["config"], **row["job"]), H200, search=False)
    assert fit.peak_allocated == pytest.approx(row["allocated"], rel=0.001)
    assert fit.peak_reserved == pytest.approx(row["reserved"], rel=0.003)


def births(job: FitJob, phase: str) -> list[int]:
    """What is asked for until the phase ends, from the end of the one before."""
    found: list[int] = []
    for event in record_job_tape(job.validate_fields(), H200).events:
        if event == phase:
            return found
        if isinstance(event, str):
            found = []
        elif event >= 0:
            found.append(event)
    raise AssertionError(f"there is no phase {phase}")


def test_torchs_adafactor_holds_one_parameter_at_a_time():
    model = LLAMA | {"num_hidden_layers": 12, "vocab_size": 512}
    largest, rises = 2 * 512 * 256, {}
    for optimizer in ("adamw", "adafactor_torch"):
        phases = predict_memory(FitJob(model=model, seq=64, optimizer=optimizer), H200, search=False).phases
        rises[optimizer] = phases["opt1"] - phases["clip1"]
    assert rises["adamw"] > 12 * 3 * largest
    assert rises["adafactor_torch"] < 3 * largest


@pytest.mark.parametrize("loss", ["fused", "liger"])
def test_liger_makes_no_second_gradient_of_the_head(loss):
    job = FitJob(model=LLAMA, micro_batch=2, seq=512, loss=loss)
    head = 8192 * 256
    assert births(job, "fwd0").count(2 * head) == 1
    assert 4 * head not in births(job, "fwd0")


def test_a_checkpointed_layer_drops_values_in_both_passes():
    job = FitJob(model=GPT2, micro_batch=3, seq=200)
    mask = 3 * 200 * 256
    plain = births(job, "fwd0").count(mask)
    assert plain == 1 + 2 * 3
    again = job.replace(checkpointing="nonreentrant")
    assert births(again, "fwd0").count(mask) == plain
    assert births(again, "bwd0").count(mask) >= 3


def test_gpt2_casts_its_attention_weights_back():
    job = FitJob(model=GPT2, micro_batch=3, seq=200, precision="amp-bf16", attention="eager", optimizer="sgd")
    square = 3 * 4 * 200 * 200
    found = births(job, "fwd0")
    assert found.count(4 * square) == 2 * 3  # with the mask, and after the softmax
    assert found.count(2 * square) == 4 * 3  # product, scaled, cast back, dropped


def test_small_states_of_a_paged_optimizer_stay():
    job = FitJob(model=LLAMA, method="lora", micro_batch=1, seq=64, optimizer="paged_adamw_8bit", clip=False)
    sizes = births(job, "opt0")
    assert sizes.count(16 * 256) >= 2  # r x hidden, one byte each: below 100,000 values
    wide = job.replace(lora_r=512)
    assert 512 * 256 not in births(wide, "opt0")


def levels(job: FitJob, phase: str) -> tuple[int, int]:
    """The most that lives in a phase, and what lives at its end."""
    sizes: list[int] = []
    now = peak = 0
    for event in record_job_tape(job.validate_fields(), H200).events:
        if event == phase:
            return peak, now
        if isinstance(event, str):
            peak = now
        elif event >= 0:
            sizes.append(event)
            now += event
            peak = max(peak, now)
        else:
            now -= sizes[~event]
    raise AssertionError(f"there is no phase {phase}")


def test_hidden_states_are_gone_when_dpo_takes_log_probabilities():
    rows, seq, vocabulary = 2, 128, 8192
    peak, end = levels(FitJob(model=LLAMA, seq=seq, dpo=True, precision="amp-bf16"), "ref0")
    logits, scores = 2 * rows * seq * vocabulary, 2 * 4 * (seq - 1) * vocabulary
    hidden = 4 * rows * seq * 256
    assert logits + scores <= peak - end < logits + scores + hidden / 2


def test_adamws_loop_holds_the_denominator_of_the_parameter_before():
    """Gate and up are as large and follow each other: root, quotient, and the quotient before."""
    job = FitJob(model=LLAMA | {"intermediate_size": 4096, "vocab_size": 512}, seq=64, optimizer="adamw_forloop")
    before, largest = levels(job, "clip1")[1], 2 * 4096 * 256
    assert levels(job, "opt1")[0] - before == 3 * largest


def test_norms_that_the_model_makes_first_come_first():
    """What a step that goes parameter by parameter holds at once hangs on their order."""
    made = births(FitJob(model=GPT2, seq=64), "build")
    assert made[2:5] == [2 * 256, 2 * 256, 2 * 3 * 256 * 256]  # behind the two tables


@pytest.mark.parametrize(("family", "biased"), [("llama", True), ("mistral", False), ("phi3", False)])
def test_attention_bias_counts_where_the_model_reads_it(family, biased):
    model = LLAMA | {"model_type": family, "pad_token_id": 0}
    plain, reported = (levels(FitJob(model=model | {"attention_bias": b}, seq=64), "build")[1] for b in (False, True))
    assert (reported > plain) is biased


def product_backwards(unpacked: bool, width: int = 4) -> list[int]:
    """Events on the way back through a weight times an activation that nobody else holds; sizes, below zero when they go."""
    tape = Tape()
    ops = TorchOps(tape, processors=0, workspace=0)
    ops.frees_saved_early = unpacked
    weight, x = ops.new_parameter((1000,), width), ops.new_parameter((50, 1000), 4)
    out = ops.mul(weight, ops.scalar_op(x))
    start, requested = len(tape.events), [ops.new_empty((50, 1000), 4)]
    ops.backward(out, requested)
    sizes = [event for event in tape.events if event >= 0]
    return [event if event >= 0 else -sizes[~event] for event in tape.events[start + 1 :]]


def test_a_gradient_is_summed_before_torch_lets_go_of_what_the_operation_kept():
    whole, small = 200_000, 4000
    assert product_backwards(unpacked=False)[:6] == [whole, whole, small, -whole, -whole, -whole]


def test_in_a_recomputed_layer_what_was_kept_goes_before_the_sum():
    whole, small = 200_000, 4000
    assert product_backwards(unpacked=True)[:6] == [whole, whole, -whole, small, -whole, -whole]


def test_a_gradient_takes_its_type_before_torch_lets_go_of_what_the_operation_kept():
    whole = 200_000
    found = product_backwards(unpacked=False, width=2)
    assert found[:7] == [whole, whole, 4000, -whole, 2000, -4000, -whole]


def test_phi3_cuts_its_queries_keys_and_values_out_one_by_one():
    layers, seq, size = 2, 80, 256
    model = LLAMA | {"model_type": "phi3", "num_key_value_heads": 4, "num_hidden_layers": layers}
    found = births(FitJob(model=model, seq=seq, precision="bf16", optimizer="sgd"), "bwd0")
    assert found.count(2 * seq * 3 * size) == 3 * layers  # each has a whole of zeros as its gradient


@pytest.mark.parametrize(("family", "times"), [("qwen2", 1), ("llama", 0)])
def test_a_four_bit_product_with_a_bias_has_a_workspace_of_its_own(family, times):
    job = FitJob(model=LLAMA | {"model_type": family}, seq=48, method="qlora")
    assert births(job, "fwd0").count(1 << 20) == times


@pytest.mark.parametrize("sharding", [{"zero": 3}, {"fsdp": True}])
def test_gathered_weights_and_reduced_gradients_come_from_streams_of_their_own(sharding):
    """ZeRO 3 with its optimizer on the host reserved 9 % more on the H200 than one pool for all streams would have."""
    tape = record_job_tape(FitJob(model=LLAMA, seq=64, world=4, **sharding).validate_fields(), H200)
    births = [event for event in tape.events if event.__class__ is not str and event >= 0]
    beside = {(tape.kinds[n], born.stream) for n, born in enumerate(births) if hasattr(born, "stream")}
    assert ("gathered weights", GATHER_STREAM) in beside
    assert {stream for _, stream in beside} == {GATHER_STREAM, REDUCE_STREAM}
    assert not {"activations", "optimizer"} & {kind for kind, _ in beside}


MOE = LLAMA | {
    "model_type": "qwen3_moe", "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 96, "head_dim": 64,
}  # fmt: skip


def ops_of(job: FitJob, phase: str) -> list[str]:
    """The operations that asked for memory in a phase, one by one."""
    tape, found, number = record_job_tape(job.validate_fields(), H200), [], 0
    for event in tape.events:
        if event == phase:
            return found
        if isinstance(event, str):
            found = []
        elif event >= 0:
            found.append(tape.ops[number])
            number += 1
    raise AssertionError(f"there is no phase {phase}")


def test_experts_zero_the_gradient_of_what_they_took_in_too():
    found = ops_of(FitJob(model=MOE, seq=80), "bwd0")
    assert found.count("masked_fill") == 3 * 3  # two results and one input, in each layer


def test_a_recomputed_layer_stops_before_its_last_rows_are_put_in_order():
    rows = 80 * 3 * 256 * 2  # of all picks, in bf16
    model = MOE | {"num_experts_per_tok": 3}
    jobs = [FitJob(model=model, seq=80, checkpointing=way) for way in ("none", "nonreentrant")]
    plain, again = (births(job, "bwd0").count(rows) for job in jobs)
    assert again == plain + 4 * 3  # in each layer: taken, projected, zeroed and weighted, and not put in order


def test_the_places_of_the_largest_are_kept_for_the_backward():
    tape = Tape()
    ops = TorchOps(tape, processors=0, workspace=0)
    weights, places = experts._top_k_values(ops, ops.new_parameter((10, 8), 4), 2)
    start = len(tape.events)
    del places
    assert tape.events[start:] == []
    ops.backward(weights, [ops.new_empty((10, 2), 4)])
    assert ~2 in tape.events  # the third birth: table, values, places


def test_an_adapter_of_experts_is_tried_out_when_it_is_registered():
    job = FitJob(model=MOE, seq=80, method="lora", lora_r=4)
    whole = 4 * (2 * 96) * 256 * 2
    assert births(job, "fwd0").count(whole) == 2 * 3


@pytest.mark.parametrize(("batch", "copies"), [(3, 1), (1, 0)])
def test_written_out_attention_takes_its_gradient_head_by_head(batch, copies):
    """Of one row of a batch it can be seen so; else it is copied before both products."""
    ops = TorchOps(Tape(), processors=0, workspace=0)
    weights, values = (ops.new_parameter(shape, 2) for shape in ((batch, 4, 50, 50), (batch, 4, 50, 16)))
    out = ops.matmul(weights, values, (batch, 4, 50, 16))
    start = len(ops.tape.ops)
    ops.backward(out, [ops.new_empty((batch, 4, 50, 16), 2)])
    assert len(ops.tape.ops) - start == 1 + 2 + copies
