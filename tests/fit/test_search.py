"""The smallest change that fits, the largest size that does, and the GPUs they are judged on."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuready.catalog import gpus
from gpuready.fit import Job, places, predict, search
from gpuready.fit.job import Fit
from gpuready.fit.proposals import axes
from gpuready.fit.proposals import settings as words_of
from gpuready.fitted import Place
from gpuready.model import Fact, Facts

SMALL = {
    "model_type": "llama", "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 6, "num_attention_heads": 8,
    "num_key_value_heads": 4, "vocab_size": 32000, "tie_word_embeddings": False,
}  # fmt: skip
GIB = 1 << 30
JOB = Job(SMALL, micro_batch=4, seq=2048)


def place(size: float, **more) -> Place:
    memory = int(size * GIB)
    return Place("a GPU", "9.0", (memory, memory), **more)


def needed(job: Job, where: Place) -> int:
    fit = predict(job, places.card(where))
    return fit.minimum + fit.overhead[1]


@pytest.fixture(scope="module")
def whole() -> int:
    return needed(JOB, place(80))


# -- the smallest change ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.9, 0.6, 0.45])
def test_every_proposal_fits_and_keeps_the_batch(share, whole):
    where = place(whole * share / GIB)
    found = search.smallest(JOB, where, search.Prophet(predict))
    assert found
    for cost, steps, other, fit in found:
        assert needed(other, where) <= where.room[0]
        assert other.micro_batch * other.accumulation * other.world == 4
        assert places.judged(where, fit).verdict == "fits" and cost > 0 and steps
    assert [cost for cost, *_ in found] == sorted(cost for cost, *_ in found)


def test_no_proposal_does_more_than_another(whole):
    found = search.smallest(JOB, place(whole * 0.7 / GIB), search.Prophet(predict))
    fields = [set(search.changes(JOB, other).items()) for _, _, other, _ in found]
    assert not any(a < b for a, b in itertools.permutations(fields, 2))


def test_the_cheapest_single_change_is_found_where_it_is_enough(whole):
    """Against trying each single step in full: none that is cheaper than the first answer fits."""
    where = place(whole * 0.8 / GIB)
    first = search.smallest(JOB, where, search.Prophet(predict))[0]
    for axis in axes(JOB):
        for step in axis:
            if step.cost < first[0]:
                assert needed(search.changed(JOB, [step]), where) > where.room[0], step.says


def test_nothing_is_proposed_where_not_everything_is_counted(whole):
    where = place(whole * 0.7 / GIB)
    assert search.smallest(JOB, where, search.Prophet(predict), open=("a second model",)) == []


def test_few_replays_are_enough():
    ask = search.Prophet(predict)
    search.smallest(JOB, place(1.2), ask)
    assert ask.asked <= 1 + 2 * search.TRIES


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from(["full", "lora", "qlora"]), st.integers(1, 6), st.sampled_from([256, 1024]),
    st.sampled_from(["none", "nonreentrant"]), st.sampled_from(["plain", "fused"]),
    st.sampled_from(["bf16", "amp-bf16", "fp32"]),
)  # fmt: skip
def test_a_sketch_is_near_the_whole(method, batch, seq, checkpointing, loss, precision):
    job = Job(SMALL, method, batch, seq, precision, checkpointing=checkpointing, loss=loss)
    ask, where = search.Prophet(predict), place(80)
    drawn, fit = ask.sketch(job, where), ask(job, where, False)
    assert drawn is not None and fit is not None
    assert abs(drawn - fit.peak_allocated) < 0.03 * fit.peak_allocated


def test_combinations_come_by_cost_and_once():
    seen = list(itertools.islice(search._combinations(axes(JOB, 8)), 4000))
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
    assert words_of("flags", changes)[:3] == (
        "--micro-batch 1",
        "--accumulation 8",
        "--gradient-checkpointing",
    )


MIXED = {
    "model_type": "mixtral", "hidden_size": 1024, "intermediate_size": 3584, "num_hidden_layers": 8, "num_attention_heads": 8,
    "num_key_value_heads": 4, "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2,
}  # fmt: skip


def test_a_guess_that_fell_short_does_not_hide_the_cheapest_way():
    """The guess knows little of adapters on experts: what it errs there must not be held against checkpointing."""
    job = Job(MIXED, method="lora")
    less = needed(job.but(checkpointing="nonreentrant"), place(80))
    where = place(less * 1.1 / GIB)
    assert needed(job, where) > where.room[1]
    _, steps, _, _ = search.smallest(job, where, search.Prophet(predict))[0]
    assert [step.changes for step in steps] == [{"checkpointing": "nonreentrant"}]


def test_the_kernel_of_an_optimizer_on_the_host_is_not_proposed():
    host = JOB.but(offload="optimizer", checkpointing="nonreentrant", loss="fused", micro_batch=1)
    fused = host.but(optimizer="adamw_fused")
    assert predict(host, places.card(place(80))) == predict(fused, places.card(place(80)))
    where = place(needed(host, place(80)) * 1.05 / GIB)
    found = search.smallest(JOB, where, search.Prophet(predict))
    moved = [other for _, _, other, _ in found if other.offload]
    assert moved and all(other.optimizer != "adamw_fused" for other in moved)


def test_nobody_is_sent_to_where_the_last_block_decides(whole):
    """With memory to spare, or with air above the smallest reserve that survives."""
    where = place(whole * 0.6 / GIB)
    for _, _, _, fit in search.smallest(JOB, where, search.Prophet(predict)):
        air = fit.minimum + fit.overhead[1] <= where.room[0] * search.TIGHT
        assert air or fit.peak_reserved + fit.overhead[1] <= where.room[0]


# -- the largest ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("field", "unit"), [("micro_batch", 1), ("seq", 64)])
def test_the_largest_fits_and_the_next_does_not(field, unit):
    where, ask = place(6), search.Prophet(predict)
    value, fit, fails = search.largest(JOB.but(checkpointing="nonreentrant"), field, where, ask)
    assert fit is not None and value % unit == 0 and fails == value + unit
    assert needed(JOB.but(checkpointing="nonreentrant", **{field: value}), where) <= where.room[0]
    assert needed(JOB.but(checkpointing="nonreentrant", **{field: fails}), where) > where.room[0]
    assert ask.asked < 30


def test_where_nothing_fits_the_largest_is_none():
    assert search.largest(JOB, "micro_batch", place(0.5), search.Prophet(predict))[:2] == (0, None)


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
    row = gpus.find(name)
    assert row is not None
    low, high = places.of_row(row).memory
    assert low <= shown * GIB <= high


def machine(**facts) -> Facts:
    known = {
        "gpu.count": 1,
        "gpu.visible": (0,),
        "gpu.name": ("NVIDIA H200",),
        "gpu.capability": ("9.0",),
    } | facts
    return Facts([Fact(key, value, "nvml") for key, value in known.items()])


def test_a_gpu_that_was_looked_at_has_what_is_free():
    idle = places.of_facts(machine(**{"gpu.memory": (150754820096,), "gpu.free": (150109880320,)}))
    assert [(p.room, p.held) for p in idle] == [((150109880320, 150109880320), 0)]
    busy = places.of_facts(machine(**{"gpu.memory": (150754820096,), "gpu.free": (100 * GIB,)}))
    assert busy[0].room == (100 * GIB, 100 * GIB) and busy[0].held == 150754820096 - 100 * GIB


def test_alike_gpus_stand_together_and_in_order():
    several = machine(
        **{
            "gpu.count": 3, "gpu.visible": (2, 0, 1), "gpu.name": ("A", "A", "A"), "gpu.capability": ("8.0",) * 3,
            "gpu.memory": (80 * GIB,) * 3, "gpu.free": (80 * GIB, 10 * GIB, 80 * GIB),
        }
    )  # fmt: skip
    assert [(p.indexes, p.room[0] // GIB) for p in places.of_facts(several)] == [((0, 1), 80), ((2,), 10)]


def test_what_cannot_be_seen_is_a_band_and_never_fits():
    fit = Fit(1 * GIB, 1 * GIB, 1 * GIB, (0, 0), {}, {})
    (sliced,) = places.of_facts(
        machine(**{"gpu.memory": (80 * GIB,), "gpu.free": (80 * GIB,), "gpu.mig": ("on",)})
    )
    assert places.judged(sliced, fit).verdict == "undecided"
    (unnamed,) = places.of_facts(machine(**{"gpu.name": ("X9",), "gpu.memory": (80 * GIB,)}))
    assert unnamed.memory[0] < 80 * GIB == unnamed.memory[1]
    assert places.of_facts(machine(**{"gpu.count": 0})) == []


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
    fit = Fit(minimum, minimum, minimum, (band, 2 * band), {}, {})
    one = Place("x", "9.0", (max(memory - less, 0), memory), held)
    verdict = places.judged(one, fit, ("x",) * more_open, ("y",) * less_open).verdict
    if verdict == "fits":
        assert minimum + 2 * band <= max(max(memory - less, 0) - held, 0) and not more_open
    if verdict == "does not fit":
        assert minimum + band > max(memory - held, 0) and not less_open
