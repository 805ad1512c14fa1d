"""The search for the smallest reserve."""

from __future__ import annotations

import pytest

from gpuready.fit import H200, FitJob
from gpuready.fit.allocator.caching_allocator import AllocatorSettings
from gpuready.fit.search.minimum_reserve import TapeReplay, find_minimum_reserve
from gpuready.fit.search.prediction import record_job_tape


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
