"""The search for the smallest reserve replays less than it asks: what it concludes is what a replay would have said."""

from __future__ import annotations

import random

import pytest

from gpuready.fit import H200, FitJob
from gpuready.fit.allocator.caching_allocator import MIB, AllocatorSettings, OutOfMemory, replay_tape
from gpuready.fit.search.minimum_reserve import SurvivalCheck, TapeReplay, find_minimum_reserve
from gpuready.fit.search.prediction import record_job_tape


def tape(dice: random.Random) -> list[int]:
    """Births and deaths as a step has them: sizes that repeat, some that stay."""
    sizes = [dice.randrange(MIB, 90 * MIB, 512) for _ in range(8)]
    events: list[int] = []
    live: list[int] = []
    births = 0
    for _ in range(300):
        if live and dice.random() < 0.47:
            events.append(~live.pop(dice.randrange(len(live))))
        else:
            events.append(dice.choice(sizes))
            live.append(births)
            births += 1
    return events


def survives(events: list[int], settings: AllocatorSettings, cap: int) -> bool:
    try:
        replay_tape(events, settings, cap)
    except OutOfMemory:
        return False
    return True


@pytest.mark.parametrize(
    "said", ["", "expandable_segments:True", "max_split_size_mb:64", "garbage_collection_threshold:0.7"]
)
@pytest.mark.parametrize("seed", range(6))
def test_a_conclusion_is_what_a_replay_says(said, seed):
    dice = random.Random(seed)
    events, settings = tape(dice), AllocatorSettings.parse_alloc_conf(said)
    free = replay_tape(events, settings)
    caps = [dice.randrange(free.peak * 9 // 10, free.peak_reserved + MIB) for _ in range(24)]
    asked = SurvivalCheck(events, settings)
    assert [asked(cap) for cap in caps] == [survives(events, settings, cap) for cap in caps]


@pytest.mark.parametrize("said", ["", "expandable_segments:True", "max_split_size_mb:64"])
@pytest.mark.parametrize("seed", range(6))
def test_within_a_bracket_most_is_played_once(said, seed):
    """As a search asks: each cap in the middle of what is still open."""
    dice = random.Random(seed)
    events, settings = tape(dice), AllocatorSettings.parse_alloc_conf(said)
    free = replay_tape(events, settings)
    low, high = free.peak, free.peak_reserved
    asked = SurvivalCheck(events, settings, low, high)
    while high - low > MIB:
        middle = (low + high) // 2
        lives = asked(middle)
        assert lives == survives(events, settings, middle)
        low, high = (low, middle) if lives else (middle, high)


@pytest.mark.parametrize("said", ["", "expandable_segments:True"])
def test_the_small_pool_of_the_free_replay_is_that_of_its_own(said):
    model = {"model_type": "llama", "hidden_size": 512, "intermediate_size": 1408, "num_hidden_layers": 4,
             "num_attention_heads": 8, "vocab_size": 8192}  # fmt: skip
    job, settings = (
        FitJob(model, micro_batch=2, seq=512, method="lora").validate_fields(),
        AllocatorSettings.parse_alloc_conf(said),
    )
    played = record_job_tape(job, H200)
    free = TapeReplay(played, settings)
    found = find_minimum_reserve(played, settings, free)
    assert free.small_reserved
    free.small_reserved = None
    assert find_minimum_reserve(played, settings, free) == found


def test_a_replay_answers_for_its_neighbours():
    """64 MiB cached and 96 wanted: whatever is not 160 gives the 64 back, and all of that is known after one replay."""
    asked = SurvivalCheck([64 * MIB, ~0, 96 * MIB], AllocatorSettings())
    assert asked(150 * MIB) and not asked(80 * MIB)
    asked._rest = []  # nothing is replayed any more
    assert all(asked(n * MIB) for n in (96, 100, 149, 159)) and not any(asked(n * MIB) for n in (80, 90, 95))
