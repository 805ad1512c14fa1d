"""The smallest change that fits, the largest size that does, and the GPUs they are judged on."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuready.catalog import gpus
from gpuready.fit import H200, FitJob, predict_memory
from gpuready.fit.job import gpu_candidates
from gpuready.fit.job.records import FitPrediction, GpuCard
from gpuready.fit.search import change_search, prediction
from gpuready.fit.search.tuning_steps import format_file_settings as words_of
from gpuready.fit.search.tuning_steps import list_tuning_axes
from gpuready.model import Fact, Facts
from gpuready.model.fit import GpuCandidate

SMALL = {
    "model_type": "llama", "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 6, "num_attention_heads": 8,
    "num_key_value_heads": 4, "vocab_size": 32000, "tie_word_embeddings": False,
}  # fmt: skip
GIB = 1 << 30
JOB = FitJob(SMALL, micro_batch=4, seq=2048)


def place(size: float, **more) -> GpuCandidate:
    memory = int(size * GIB)
    return GpuCandidate("a GPU", "9.0", (memory, memory), **more)


def needed(job: FitJob, where: GpuCandidate) -> int:
    fit = predict_memory(job, gpu_candidates.to_gpu_card(where))
    return fit.minimum + fit.overhead[1]


@pytest.fixture(scope="module")
def whole() -> int:
    return needed(JOB, place(80))


# -- the smallest change ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.9, 0.6, 0.45])
def test_every_proposal_fits_and_keeps_the_batch(share, whole):
    where = place(whole * share / GIB)
    found = change_search.find_cheapest_changes(JOB, where, change_search.CachedPredictor(predict_memory))
    assert found
    for cost, steps, other, fit in found:
        assert needed(other, where) <= where.available_memory[0]
        assert other.micro_batch * other.accumulation * other.world == 4
        assert gpu_candidates.judge_gpu(where, fit).verdict == "fits" and cost > 0 and steps
    assert [cost for cost, *_ in found] == sorted(cost for cost, *_ in found)


def test_no_proposal_does_more_than_another(whole):
    found = change_search.find_cheapest_changes(
        JOB, place(whole * 0.7 / GIB), change_search.CachedPredictor(predict_memory)
    )
    fields = [set(change_search.diff_jobs(JOB, other).items()) for _, _, other, _ in found]
    assert not any(a < b for a, b in itertools.permutations(fields, 2))


def test_the_cheapest_single_change_is_found_where_it_is_enough(whole):
    """Against trying each single step in full: none that is cheaper than the first answer fits."""
    where = place(whole * 0.8 / GIB)
    first = change_search.find_cheapest_changes(JOB, where, change_search.CachedPredictor(predict_memory))[0]
    for axis in list_tuning_axes(JOB):
        for step in axis:
            if step.cost < first[0]:
                assert needed(change_search.apply_steps(JOB, [step]), where) > where.available_memory[0], step.says


def test_nothing_is_proposed_where_not_everything_is_counted(whole):
    where = place(whole * 0.7 / GIB)
    assert (
        change_search.find_cheapest_changes(
            JOB, where, change_search.CachedPredictor(predict_memory), uncounted=("a second model",)
        )
        == []
    )


def test_few_replays_are_enough():
    ask = change_search.CachedPredictor(predict_memory)
    change_search.find_cheapest_changes(JOB, place(1.2), ask)
    assert ask.prediction_count <= 1 + 2 * change_search.MAX_REPLAYS


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(["full", "lora", "qlora"]), st.integers(1, 6), st.sampled_from([256, 1024]),
    st.sampled_from(["none", "nonreentrant"]), st.sampled_from(["plain", "fused"]),
    st.sampled_from(["bf16", "amp-bf16", "fp32"]),
)  # fmt: skip
def test_a_sketch_is_near_the_whole(method, batch, seq, checkpointing, loss, precision):
    job = FitJob(SMALL, method, batch, seq, precision, checkpointing=checkpointing, loss=loss)
    ask, where = change_search.CachedPredictor(predict_memory), place(80)
    drawn, fit = ask.sketch_allocation(job, where), ask(job, where, False)
    assert drawn is not None and fit is not None
    assert abs(drawn - fit.peak_allocated) < 0.03 * fit.peak_allocated


def test_combinations_come_by_cost_and_once():
    seen = list(itertools.islice(change_search._cheapest_combinations(list_tuning_axes(JOB, 8)), 4000))
    costs = [cost for cost, _, _ in seen]
    assert costs == sorted(costs) and len({levels for _, levels, _ in seen}) == len(seen)


def test_the_words_of_a_change():
    changes = {
        "micro_batch": 1,
        "accumulation": 8,
        "checkpointing": "nonreentrant",
        "optimizer": "adamw_8bit",
        "zero": 2,
    }
    assert words_of("axolotl", changes) == (
        "micro_batch_size: 1", "gradient_accumulation_steps: 8", "gradient_checkpointing: true",
        "optimizer: adamw_bnb_8bit", "deepspeed: deepspeed_configs/zero2.json",
    )  # fmt: skip
    assert words_of("flags", changes)[:3] == ("--micro-batch 1", "--accumulation 8", "--gradient-checkpointing")


MIXED = {
    "model_type": "mixtral", "hidden_size": 1024, "intermediate_size": 3584, "num_hidden_layers": 8, "num_attention_heads": 8,
    "num_key_value_heads": 4, "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2,
}  # fmt: skip


def test_a_guess_that_fell_short_does_not_hide_the_cheapest_way():
    """The guess knows little of adapters on experts: what it errs there must not be held against checkpointing."""
    job = FitJob(MIXED, method="lora")
    less = needed(job.replace(checkpointing="nonreentrant"), place(80))
    where = place(less * 1.1 / GIB)
    assert needed(job, where) > where.available_memory[1]
    _, steps, _, _ = change_search.find_cheapest_changes(job, where, change_search.CachedPredictor(predict_memory))[0]
    assert [step.changes for step in steps] == [{"checkpointing": "nonreentrant"}]


def test_the_kernel_of_an_optimizer_on_the_host_is_not_proposed():
    host = JOB.replace(offload="optimizer", checkpointing="nonreentrant", loss="fused", micro_batch=1)
    fused = host.replace(optimizer="adamw_fused")
    assert predict_memory(host, gpu_candidates.to_gpu_card(place(80))) == predict_memory(
        fused, gpu_candidates.to_gpu_card(place(80))
    )
    where = place(needed(host, place(80)) * 1.05 / GIB)
    found = change_search.find_cheapest_changes(JOB, where, change_search.CachedPredictor(predict_memory))
    moved = [other for _, _, other, _ in found if other.offload]
    assert moved and all(other.optimizer != "adamw_fused" for other in moved)


def test_nobody_is_sent_to_where_the_last_block_decides(whole):
    """With memory to spare, or with air above the smallest reserve that survives."""
    where = place(whole * 0.6 / GIB)
    for _, _, _, fit in change_search.find_cheapest_changes(JOB, where, change_search.CachedPredictor(predict_memory)):
        air = fit.minimum + fit.overhead[1] <= where.available_memory[0] * change_search.MAX_RESERVE_SHARE
        assert air or fit.peak_reserved + fit.overhead[1] <= where.available_memory[0]


# -- the largest ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("field", "unit"), [("micro_batch", 1), ("seq", 64)])
def test_the_largest_fits_and_the_next_does_not(field, unit):
    where, ask = place(6), change_search.CachedPredictor(predict_memory)
    value, fit, fails = change_search.find_largest_value(JOB.replace(checkpointing="nonreentrant"), field, where, ask)
    assert fit is not None and value % unit == 0 and fails == value + unit
    assert needed(JOB.replace(checkpointing="nonreentrant", **{field: value}), where) <= where.available_memory[0]
    assert needed(JOB.replace(checkpointing="nonreentrant", **{field: fails}), where) > where.available_memory[0]
    assert ask.prediction_count < 30


def test_where_nothing_fits_the_largest_is_none():
    assert change_search.find_largest_value(
        JOB, "micro_batch", place(0.5), change_search.CachedPredictor(predict_memory)
    )[:2] == (0, None)


# -- the GPUs -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        # What torch says that such a card has, in GiB.
        ("h200", 139.80), ("h100", 79.10), ("h100", 79.33), ("a100-80gb", 79.15), ("a100-40gb", 39.38), ("rtx4090", 23.52),
        ("rtx3090", 23.69), ("rtx5090", 31.36), ("t4", 14.56), ("a10g", 22.04), ("l4", 22.03), ("l40s", 44.39), ("a6000", 47.43),
        ("v100-32gb", 31.73), ("v100-16gb", 15.77), ("rtx3060", 11.63), ("rtx4060", 7.63), ("b200", 178.35),
    ],
)  # fmt: skip
def test_what_a_card_shows_is_inside_its_band(name, shown):
    row = gpus.find_gpu(name)
    assert row is not None
    low, high = gpu_candidates.gpu_from_row(row).memory
    assert low <= shown * GIB <= high


def machine(**facts) -> Facts:
    known = {"gpu.count": 1, "gpu.visible": (0,), "gpu.name": ("NVIDIA H200",), "gpu.capability": ("9.0",)} | facts
    return Facts([Fact(key, value, "nvml") for key, value in known.items()])


def test_a_gpu_that_was_looked_at_has_what_is_free():
    idle = gpu_candidates.gpus_from_facts(machine(**{"gpu.memory": (150754820096,), "gpu.free": (150109880320,)}))
    assert [(p.available_memory, p.held) for p in idle] == [((150109880320, 150109880320), 0)]
    busy = gpu_candidates.gpus_from_facts(machine(**{"gpu.memory": (150754820096,), "gpu.free": (100 * GIB,)}))
    assert busy[0].available_memory == (100 * GIB, 100 * GIB) and busy[0].held == 150754820096 - 100 * GIB


def test_alike_gpus_stand_together_and_in_order():
    several = machine(
        **{
            "gpu.count": 3, "gpu.visible": (2, 0, 1), "gpu.name": ("A", "A", "A"), "gpu.capability": ("8.0",) * 3,
            "gpu.memory": (80 * GIB,) * 3, "gpu.free": (80 * GIB, 10 * GIB, 80 * GIB),
        }
    )  # fmt: skip
    assert [(p.indexes, p.available_memory[0] // GIB) for p in gpu_candidates.gpus_from_facts(several)] == [
        ((0, 1), 80),
        ((2,), 10),
    ]


def test_what_cannot_be_seen_is_a_band_and_never_fits():
    fit = FitPrediction(1 * GIB, 1 * GIB, 1 * GIB, (0, 0), {}, {})
    (sliced,) = gpu_candidates.gpus_from_facts(
        machine(**{"gpu.memory": (80 * GIB,), "gpu.free": (80 * GIB,), "gpu.mig": ("on",)})
    )
    assert gpu_candidates.judge_gpu(sliced, fit).verdict == "undecided"
    (unnamed,) = gpu_candidates.gpus_from_facts(machine(**{"gpu.name": ("X9",), "gpu.memory": (80 * GIB,)}))
    assert unnamed.memory[0] < 80 * GIB == unnamed.memory[1]
    assert gpu_candidates.gpus_from_facts(machine(**{"gpu.count": 0})) == []


@given(
    st.integers(0, 200),
    st.integers(0, 4),
    st.integers(0, 200),
    st.integers(0, 10),
    st.integers(0, 200),
    st.booleans(),
    st.booleans(),
)
def test_fits_is_never_said_where_it_may_not(minimum, band, memory, less, held, more_open, less_open):
    fit = FitPrediction(minimum, minimum, minimum, (band, 2 * band), {}, {})
    one = GpuCandidate("x", "9.0", (max(memory - less, 0), memory), held)
    verdict = gpu_candidates.judge_gpu(one, fit, ("x",) * more_open, ("y",) * less_open).verdict
    if verdict == "fits":
        assert minimum + 2 * band <= max(max(memory - less, 0) - held, 0) and not more_open
    if verdict == "does not fit":
        assert minimum + band > max(memory - held, 0) and not less_open


@pytest.mark.parametrize("fields", [{}, {"world": 4, "zero": 1}, {"world": 4, "zero": 2}, {"world": 4, "zero": 3}])
def test_cards_that_share_a_tape_have_the_same_one(fields):
    """Two cards of one capability and unlike memory: what the cache gives is what is recorded anew."""
    job = FitJob(SMALL | {"num_hidden_layers": 1}, **fields).validate_fields()
    for card in (H200, GpuCard("half", H200.capability, H200.memory // 2), GpuCard("tiny", H200.capability, 1)):
        cached, fresh = prediction.cached_job_tape(job, card), prediction.record_job_tape(job, card)
        assert cached.events == fresh.events
