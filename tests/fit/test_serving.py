"""``fit --serve``: the KV cache of vLLM and SGLang, against their own logs where people published them."""

from __future__ import annotations

import json

import pytest

from gpuready.fit.job.known_models import find_model_config
from gpuready.fit.serving.memory_pool import (
    ServingJob,
    find_rank_share,
    serve_model,
    sglang_fraction,
    stored_bits,
    weight_bytes,
)
from gpuready.model.fit import GpuCandidate
from gpuready.render.fit_serving import describe_serving
from tests.fit.asking import SMALL, document
from tests.running import gpuready

GIB = 1 << 30
PUBLISHED = {
    # https://github.com/vllm-project/vllm/issues/10517: weights, cache and tokens of Llama 3.1 8B on an RTX 3090
    "20k": ("llama-3.1-8b", 23.58, {"fraction": 0.9, "context": 20000, "batch_tokens": 20000, "max_sequences": 256}, 14.99, 3.81, 31232),
    "29k": ("llama-3.1-8b", 23.58, {"fraction": 0.9, "context": 29000, "batch_tokens": 29000, "max_sequences": 256}, 14.99, 2.89, 23648),
    # https://github.com/vllm-project/vllm/pull/12569: 1381 blocks beside 8-bit weights
    "w8a8": ("llama-3.1-70b", 79.1, {"fraction": 0.98, "context": 2048, "quant": "int8"}, 67.72, 6.74, 22096),
}  # fmt: skip


def gpu(size: float, name: str = "NVIDIA H100 80GB HBM3") -> GpuCandidate:
    return GpuCandidate(name, "9.0", (int(size * GIB), int(size * GIB)))


@pytest.mark.parametrize(("model", "size", "job", "weights", "cache", "tokens"), PUBLISHED.values(), ids=PUBLISHED)
def test_a_published_log_lies_in_the_range(model, size, job, weights, cache, tokens):
    served = serve_model(ServingJob(find_model_config(model), **job), gpu(size))
    assert served.weights / GIB == pytest.approx(weights, rel=0.005)
    assert served.pool[0] <= cache * GIB <= served.pool[1]
    assert served.tokens[0] <= tokens <= served.tokens[1]


def test_a_context_that_the_cache_cannot_hold_does_not_fit():
    job = ServingJob(find_model_config("llama-3.1-8b"), fraction=0.9, batch_tokens=29000, max_sequences=256)
    assert serve_model(job.replace(context=29000), gpu(23.58)).verdict == "does not fit"
    assert serve_model(job.replace(context=16000), gpu(23.58)).verdict == "fits"
    assert serve_model(job.replace(context=16000, wanted=4), gpu(23.58)).verdict == "does not fit"
    large = serve_model(job.replace(model=find_model_config("llama-3.1-70b")), gpu(23.58))
    assert describe_serving(large).startswith("vllm: no room for a KV cache: the weights take 131.4 GiB of the ")


def test_ranks_share_weights_and_cache():
    whole = find_rank_share(find_model_config("llama-3.1-70b"))
    quarter = find_rank_share(find_model_config("llama-3.1-70b"), tensor=4)
    assert quarter.cache * 4 == whole.cache
    assert quarter.linear == pytest.approx(whole.linear / 4, rel=1e-6)
    wide = find_rank_share(find_model_config("llama-3.1-70b"), tensor=16)  # more ranks than heads of the cache
    assert wide.cache * 8 == whole.cache
    stages = find_rank_share(find_model_config("llama-3.1-70b"), pipeline=4)
    assert stages.layers == 20 and stages.cache * 4 == whole.cache
    with pytest.raises(ValueError, match="64 attention heads"):
        find_rank_share(find_model_config("llama-3.1-70b"), tensor=5)


def test_latent_attention_keeps_one_vector_and_windows_keep_the_window():
    latent = SMALL | {"kv_lora_rank": 512, "qk_rope_head_dim": 64}
    assert find_rank_share(latent, tensor=2).cache == 4 * 576
    gemma = find_rank_share(find_model_config("gemma-3-12b"))
    assert gemma.windowed > gemma.cache > 0 and gemma.window == 1024
    job = ServingJob(find_model_config("gemma-3-12b"), context=131072)
    served = serve_model(job, gpu(79.1))
    assert served.largest_context[0] > 2 * served.tokens[0]


@pytest.mark.parametrize(
    ("stored", "bits"),
    [({"quant_method": "awq", "bits": 4}, 4), ({"quant_method": "gptq", "bits": 8}, 8), ({"quant_method": "fp8"}, 8),
     ({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 4}}}}, 4), ("text", 0), (None, 0)],
)  # fmt: skip
def test_a_quantised_checkpoint_counts_in_its_bits(stored, bits):
    config = SMALL | {"quantization_config": stored}
    assert stored_bits(config) == bits
    share = find_rank_share(config)
    plain = weight_bytes(share, SMALL, "", 2)
    assert (weight_bytes(share, config, "", 2) < plain) == bool(bits)


def test_sglang_reserves_by_its_own_rule():
    """512 + 1.5 x 8192 + 1024/8 + 2 x 256 MiB of 81920: more than its floor of 10 GiB."""
    card = gpu(80)
    assert sglang_fraction(card, 8192, 256, ServingJob({})) == round((81920 - 13440) / 81920, 3)
    served = serve_model(ServingJob(find_model_config("llama-3.1-8b"), "sglang"), card)
    assert served.fraction == 0.836
    assert served.pool[1] == served.budget[1] - served.weights


def test_the_screen_leads_with_the_answer_and_names_the_setting():
    ran = gpuready("fit", "llama-3.1-8b", "--serve", "vllm", "--on", "rtx4090", "--seq", "32k", "--micro-batch", "2")
    assert ran.code == 1 and ran.out.startswith("does not fit: llama-3.1-8b on 1x RTX 4090 (--on rtx4090), by ")
    assert "  vllm: context 32768 of at most" in ran.out
    assert "what would make it fit" in ran.out and "--kv-cache-dtype fp8" in ran.out
    found, code = document("llama-3.1-8b", "--serve", "vllm", "--on", "h100")
    assert code == 0 and found["serving"]["engine"] == "vllm" and found["serving"]["tokens"][0] > 300_000


def test_every_proposal_fits_when_it_is_asked_again():
    found, _ = document("llama-3.1-8b", "--serve", "vllm", "--on", "rtx4090", "--seq", "32k", "--micro-batch", "2")
    assert found["proposals"]
    for one in found["proposals"]:
        assert document(*one["run"][2:])[1] == 0, one["run"]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--serve", "tgi"), "vllm"),
        (("--serve", "vllm", "--memory-fraction", "1.5"), "memory-fraction"),
        (("--serve", "vllm", "--method", "lora"), "is of training"),
        (("--serve", "vllm", "--trace"), "--trace"),
        (("--kv-dtype", "fp8"), "goes with --serve"),
        (("--serve", "vllm", "--tensor-parallel", "5", "--on", "h100x8"), "32 attention heads"),
        (("--serve", "vllm", "--tensor-parallel", "4", "--on", "h100x2"), "the machine has 2"),
    ],
)
def test_bad_questions_are_one_sentence(words, sentence):
    ran = gpuready("fit", "llama-3.1-8b", *words)
    assert ran.code == 2 and sentence in ran.err and ran.err.count("\n") == 1 and "Traceback" not in ran.err


def test_a_checkpoint_of_the_hub_in_4_bits_is_served_in_4_bits(tmp_path):
    config = SMALL | {"max_position_embeddings": 2048, "quantization_config": {"quant_method": "awq", "bits": 4}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    found, code = document(str(tmp_path), "--serve", "sglang", "--on", "rtx4090")
    assert code == 0 and found["serving"]["context"] == 2048
    assert found["serving"]["largest_context"] == [2048, 2048]  # what the model has positions for
    assert found["serving"]["weights"] < 2 * 4 * 13e6 + 2 * 2 * 33e6
