"""How many parameters a model has. The counts are those that the models' own weights add up to."""

from __future__ import annotations

import pytest

from gpuready.jobs.model_config import count_model_parameters, find_size_in_name
from gpuready.model.sizes import parse_count


def gated(kind, hidden, layers, heads, groups, inner, vocab, **more):
    return {
        "model_type": kind,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "intermediate_size": inner,
        "vocab_size": vocab,
        **more,
    }


LLAMA = gated("llama", 4096, 32, 32, None, 11008, 32000)
LLAMA3 = gated("llama", 4096, 32, 32, 8, 14336, 128256)
MISTRAL = gated("mistral", 4096, 32, 32, 8, 14336, 32000)
MIXTRAL = gated("mixtral", 4096, 32, 32, 8, 14336, 32000, num_local_experts=8)
QWEN2 = gated("qwen2", 3584, 28, 28, 4, 18944, 152064)
QWEN3 = gated("qwen3", 1024, 28, 16, 8, 3072, 151936, head_dim=128, tie_word_embeddings=True)
SPARSE = {"num_experts": 128, "moe_intermediate_size": 768, "decoder_sparse_step": 1, "mlp_only_layers": []}
MOE = gated("qwen3_moe", 2048, 48, 32, 4, 6144, 151936, head_dim=128, **SPARSE)
SHARED = {"num_experts": 60, "moe_intermediate_size": 1408, "shared_expert_intermediate_size": 5632}
QWEN2_MOE = gated("qwen2_moe", 2048, 24, 16, 16, 5632, 151936, **SHARED)
GEMMA = gated("gemma", 2048, 18, 8, 1, 16384, 256000, head_dim=256)
GEMMA2 = gated("gemma2", 2304, 26, 8, 4, 9216, 256000, head_dim=256)
GEMMA3 = gated("gemma3_text", 1152, 26, 4, 1, 6912, 262144, head_dim=256)
GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_positions": 1024, "vocab_size": 50257, "n_inner": None}
NEOX = gated("gpt_neox", 2048, 24, 16, None, 8192, 50304)


@pytest.mark.parametrize(
    ("config", "count"),
    [
        (LLAMA, 6_738_415_616),
        (LLAMA3, 8_030_261_248),
        (MISTRAL, 7_241_732_096),
        (MIXTRAL, 46_702_792_704),
        (QWEN2, 7_615_616_512),
        (QWEN3, 596_049_920),
        (MOE, 30_532_122_624),
        (QWEN2_MOE, 14_315_784_192),
        (GEMMA, 2_506_172_416),
        (GEMMA2, 2_614_341_888),
        (GEMMA3, 999_885_952),
        (GPT2, 124_439_808),
        (NEOX, 1_414_647_808),
    ],
    ids=[
        "llama-2-7b",
        "llama-3-8b",
        "mistral-7b",
        "mixtral-8x7b",
        "qwen2.5-7b",
        "qwen3-0.6b",
        "qwen3-30b-a3b",
        "qwen1.5-moe",
        "gemma-2b",
        "gemma-2-2b",
        "gemma-3-1b",
        "gpt2",
        "pythia-1.4b",
    ],
)
def test_counts(config, count):
    assert count_model_parameters(config) == count


def test_a_model_with_a_vision_part_is_counted_by_its_text():
    assert count_model_parameters({"model_type": "gemma3", "text_config": GEMMA3}) == count_model_parameters(GEMMA3)


def test_biases():
    plain = count_model_parameters(LLAMA)
    assert count_model_parameters(LLAMA | {"attention_bias": True}) == plain + 32 * (3 * 4096 + 4096)
    assert count_model_parameters(LLAMA | {"mlp_bias": True}) == plain + 32 * (2 * 11008 + 4096)


def test_layers_without_experts():
    some = MOE | {"mlp_only_layers": [0, 1]}
    assert count_model_parameters(some) < count_model_parameters(MOE)
    assert count_model_parameters(MOE | {"decoder_sparse_step": 2}) < count_model_parameters(some)


def test_what_is_not_known_is_not_guessed():
    assert count_model_parameters({"model_type": "mamba", "hidden_size": 10}) is None
    assert count_model_parameters({"model_type": "mamba", "num_parameters": 130_000_000}) == 130_000_000
    assert count_model_parameters({}) is None
    assert count_model_parameters({"num_parameters": "many"}) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"hidden_size": "4096"},
        {"vocab_size": True},
        {"hidden_size": -1},
        {"hidden_size": None},
        {"num_hidden_layers": 1 << 50},
        {"intermediate_size": 4.5},
    ],
)
def test_numbers_that_are_none(wrong):
    with pytest.raises((ValueError, TypeError, KeyError)):
        count_model_parameters(LLAMA | wrong)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("7b", 7 * 10**9),
        ("7B", 7 * 10**9),
        (" 1.5b ", 1_500_000_000),
        ("350m", 350_000_000),
        ("0.5B", 500_000_000),
        ("7000000000", 7 * 10**9),
        ("1t", 10**12),
        ("70k", 70_000),
        ("", None),
        ("b", None),
        (".5b", None),
        ("-7b", None),
        ("7bb", None),
        ("1e9", None),
        ("7 b", None),
        ("0b", 0),
        ("٧b", None),
        ("1.2.3b", None),
        ("9" * 99, None),
    ],
)
def test_sizes(text, count):
    assert parse_count(text) == count


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", 8 * 10**9),
        ("Qwen/Qwen2.5-1.5B", 1_500_000_000),
        ("Qwen/Qwen3-30B-A3B", 30 * 10**9),
        ("Qwen2.5-7B-Instruct-1M", 7 * 10**9),
        ("internlm2-chat-1m", None),
        ("EleutherAI/pythia-410m-deduped", 410_000_000),
        ("mistralai/Mixtral-8x7B-v0.1", 46_702_792_704),
        ("gpt2", None),
        ("bert-base-uncased", None),
        ("some-4x9b-thing", None),
        ("8b-org/nameless", None),
        ("", None),
    ],
)
def test_names(name, count):
    assert find_size_in_name(name) == count
