"""Sharding as it is: quantised bases, FSDP1 beside FSDP2, and sequences that ranks share."""

from __future__ import annotations

import pytest

from gpuready.fit.job.known_models import find_model_config
from gpuready.fit.job.records import H200, FitJob
from gpuready.fit.search.prediction import predict_job
from tests.fit.asking import SMALL

QLORA = {"method": "qlora", "fsdp": True, "checkpointing": "nonreentrant", "precision": "bf16", "seq": 512}


def phase_stacks(job: FitJob):
    return predict_job(job, H200).stacks


def lasting(job: FitJob) -> int:
    return phase_stacks(job)["optimizer step"]["parameters"]


def test_the_4_bit_base_is_shared_and_its_scales_are_not():
    """72B in 4 bits: half a byte for each weight is shared; one byte for every 64 weights is on every GPU."""
    small = FitJob(find_model_config("qwen2.5-72b") | {"num_hidden_layers": 4}, **QLORA)
    two, eight = (lasting(small.replace(world=n)) for n in (2, 8))
    linear = 4 * (8192 * (8192 * 2 + 2 * 1024) + 3 * 8192 * 29568)
    shared = linear / 2 + 2 * 2 * 152064 * 8192
    assert two - eight == pytest.approx(shared * (1 / 2 - 1 / 8), rel=0.01)  # and the adapters
    assert eight > shared / 8 + linear / 64


def test_zero_3_shares_the_4_bit_base_and_zero_2_does_not():
    job = FitJob(SMALL, **QLORA | {"fsdp": False}, world=4)
    whole, shared = lasting(job.replace(zero=2)), lasting(job.replace(zero=3))
    assert shared < whole / 2


def test_8_bit_codes_stay_whole():
    job = FitJob(SMALL, **QLORA, quant="int8", world=4)
    assert lasting(job) > lasting(job.replace(quant="nf4", double_quant=True)) * 1.2


def test_fsdp1_gathers_in_place_and_fsdp2_copies_out():
    job = FitJob(SMALL, fsdp=True, world=4, seq=256)
    gathered = {n: phase_stacks(job.replace(fsdp_version=n))["forward"]["gathered weights"] for n in (1, 2)}
    assert gathered[1] < gathered[2]
    with pytest.raises(ValueError, match="fsdp_version"):
        job.replace(fsdp_version=3).validate_fields()


def test_ranks_of_a_sequence_share_its_activations():
    job = FitJob(SMALL, seq=4096, world=4, fsdp=True)
    alone, four = (phase_stacks(job.replace(context_parallel=n))["forward"]["activations"] for n in (1, 4))
    assert four == pytest.approx(alone / 4, rel=0.05)
    assert predict_job(job.replace(context_parallel=4), H200, search=False).notes
    with pytest.raises(ValueError, match="multiple of context_parallel"):
        job.replace(context_parallel=3).validate_fields()


def test_a_policy_has_no_cross_entropy_in_fp32():
    job = FitJob(
        SMALL | {"vocab_size": 128_000}, seq=1024, micro_batch=8, optimizer="sgd", checkpointing="nonreentrant"
    )
    plain, scores, inplace, value = (
        predict_job(job.replace(loss=loss), H200, search=False).peak_allocated
        for loss in ("plain", "logprob", "logprob_inplace", "value")
    )
    assert plain > scores > inplace > value


def test_scoring_takes_weights_and_logits_and_no_gradients():
    job = FitJob(SMALL, task="score", micro_batch=4, seq=1024)
    kinds = phase_stacks(job)["scoring"]
    assert "gradients" not in kinds and "optimizer" not in kinds
    assert sum(kinds.values()) > kinds["parameters"] + 4 * 1024 * 32000 * 2
    shared = phase_stacks(job.replace(fsdp=True, world=4))["scoring"]
    assert shared["parameters"] == pytest.approx(kinds["parameters"] / 4, rel=0.01)


def test_ranks_that_share_layers_do_not_share_state_again():
    """Eight ranks in pairs that share each layer: four shards of half a model, as of eight shards of a whole."""
    job = FitJob(SMALL, zero=1, world=8, seq=256)
    state = {n: phase_stacks(job.replace(tensor_parallel=n))["optimizer step"]["optimizer"] for n in (1, 2)}
    assert job.replace(tensor_parallel=2).shard_ranks == 4
    assert state[2] > 0.9 * state[1]
