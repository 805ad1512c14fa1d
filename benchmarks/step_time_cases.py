"""The third set of cases of the time of a step: models, sizes and settings that the first two sets do not have."""

from __future__ import annotations

from typing import Any


def _config(kind: str, hidden: int, inter: int, layers: int, heads: int, vocabulary: int, **more: Any) -> Any:
    base = {
        "hidden_size": hidden,
        "intermediate_size": inter,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
    }
    return [kind, {**base, "vocab_size": vocabulary, **more}]


MODELS: dict[str, Any] = {
    "llama_600m": _config("llama", 1536, 4096, 20, 12, 32000, num_key_value_heads=4, tie_word_embeddings=False),
    "llama_1b": _config("llama", 2048, 8192, 16, 32, 128256, num_key_value_heads=8, tie_word_embeddings=True),
    "llama_3b": _config("llama", 3072, 8192, 28, 24, 128256, num_key_value_heads=8, tie_word_embeddings=True),
    "llama_8b": _config("llama", 4096, 14336, 32, 32, 128256, num_key_value_heads=8, tie_word_embeddings=False),
    "qwen2_05b": _config("qwen2", 896, 4864, 24, 14, 151936, num_key_value_heads=2, tie_word_embeddings=True),
    "qwen2_3b": _config("qwen2", 2048, 11008, 36, 16, 151936, num_key_value_heads=2, tie_word_embeddings=True),
    "qwen3_17b": _config("qwen3", 2048, 6144, 28, 16, 151936, num_key_value_heads=8, head_dim=128, tie_word_embeddings=True),
    "qwen3_14b": _config("qwen3", 5120, 17408, 40, 40, 151936, num_key_value_heads=8, head_dim=128, tie_word_embeddings=False),
    "mistral_12b": _config("mistral", 5120, 14336, 40, 32, 131072, num_key_value_heads=8, head_dim=128, sliding_window=None, tie_word_embeddings=False),
    "mistral_7b": _config("mistral", 4096, 14336, 32, 32, 32768, num_key_value_heads=8, sliding_window=None, tie_word_embeddings=False),
    "gemma_2b": _config("gemma", 2048, 16384, 18, 8, 256000, num_key_value_heads=1, head_dim=256, tie_word_embeddings=True),
    "gemma2_9b": _config("gemma2", 3584, 14336, 42, 16, 256000, num_key_value_heads=8, head_dim=256, sliding_window=4096, tie_word_embeddings=True),
    "gemma2_2b": _config("gemma2", 2304, 9216, 26, 8, 256000, num_key_value_heads=4, head_dim=256, sliding_window=4096, tie_word_embeddings=True),
    "gemma3_1b": _config("gemma3_text", 1152, 6912, 26, 4, 262144, num_key_value_heads=1, head_dim=256, sliding_window=512, tie_word_embeddings=True),
    "phi_2": _config("phi", 2560, 10240, 32, 32, 51200, num_key_value_heads=32, tie_word_embeddings=False),
    "phi3_mini": _config("phi3", 3072, 8192, 32, 32, 32064, num_key_value_heads=32, pad_token_id=0),
    "pythia_69b": _config("gpt_neox", 4096, 16384, 32, 32, 50432, use_parallel_residual=True, tie_word_embeddings=False),
    "pythia_160m": _config("gpt_neox", 768, 3072, 12, 12, 50304, use_parallel_residual=True, tie_word_embeddings=False),
    "gpt2_medium": ["gpt2", {"n_embd": 1024, "n_layer": 24, "n_head": 16, "vocab_size": 50257, "n_positions": 1024}],
    "mixtral_l": _config("mixtral", 2048, 5632, 6, 16, 32000, num_key_value_heads=4, num_local_experts=8, num_experts_per_tok=2, sliding_window=None, tie_word_embeddings=False),
    "qwen3moe_64": _config("qwen3_moe", 2048, 6144, 12, 32, 151936, num_key_value_heads=4, head_dim=128, moe_intermediate_size=768, num_experts=64, num_experts_per_tok=8, decoder_sparse_step=1, mlp_only_layers=[], tie_word_embeddings=False),
    "olmo2_1b": _config("olmo2", 2048, 8192, 16, 16, 100352, num_key_value_heads=16, tie_word_embeddings=False),
    "granite_2b": _config("granite", 2048, 8192, 40, 32, 49152, num_key_value_heads=8, tie_word_embeddings=True),
    "starcoder2_3b": _config("starcoder2", 3072, 12288, 30, 24, 49152, num_key_value_heads=2, tie_word_embeddings=True, sliding_window=None),
    "llama_110m": _config("llama", 768, 2048, 12, 12, 32000, num_key_value_heads=12, tie_word_embeddings=False),
    "qwen2_15b": _config("qwen2", 1536, 8960, 28, 12, 151936, num_key_value_heads=2, tie_word_embeddings=True),
    "qwen3_06b": _config("qwen3", 1024, 3072, 28, 16, 151936, num_key_value_heads=8, head_dim=128, tie_word_embeddings=True),
    "phi_15": _config("phi", 2048, 8192, 24, 32, 51200, num_key_value_heads=32, tie_word_embeddings=False),
    "pythia_28b": _config("gpt_neox", 2560, 10240, 32, 32, 50304, use_parallel_residual=True, tie_word_embeddings=False),
    "gpt2_large": ["gpt2", {"n_embd": 1280, "n_layer": 36, "n_head": 20, "vocab_size": 50257, "n_positions": 1024}],
    "mixtral_s": _config("mixtral", 1024, 3584, 8, 16, 32000, num_key_value_heads=4, num_local_experts=8, num_experts_per_tok=2, sliding_window=None, tie_word_embeddings=False),
    "qwen3moe_s": _config("qwen3_moe", 2048, 6144, 8, 32, 151936, num_key_value_heads=4, head_dim=128, moe_intermediate_size=768, num_experts=32, num_experts_per_tok=8, decoder_sparse_step=1, mlp_only_layers=[], tie_word_embeddings=False),
}  # fmt: skip
STEPS: tuple[tuple[Any, ...], ...] = (
    ("P01", "llama_600m", 4, 2048, {}),
    ("P02", "llama_600m", 1, 256, {}),
    ("P03", "llama_600m", 2, 4096, {"prec": "amp", "opt": "fused", "gc": 1}),
    ("P04", "qwen2_3b", 1, 4096, {}),
    ("P05", "qwen2_3b", 2, 4096, {"lora": 32, "gc": 1}),
    ("P06", "qwen3_14b", 1, 2048, {"lora": 16, "gc": 1}),
    ("P07", "qwen3_17b", 1, 512, {}),
    ("P08", "qwen3_17b", 4, 1024, {"opt": "fused", "gc": 1}),
    ("P09", "mistral_12b", 1, 1024, {"lora": 8}),
    ("P10", "gemma2_9b", 1, 2048, {"lora": 16, "gc": 1}),
    ("P11", "gemma3_1b", 2, 2048, {"opt": "fused", "gc": 1}),
    ("P12", "gemma_2b", 4, 1024, {"opt": "sgd"}),
    ("P13", "phi_2", 1, 2048, {}),
    ("P14", "phi3_mini", 2, 2048, {"opt": "fused", "gc": 1}),
    ("P15", "pythia_69b", 1, 2048, {"lora": 16}),
    ("P16", "pythia_160m", 16, 1024, {"prec": "amp"}),
    ("P17", "gpt2_medium", 4, 512, {}),
    ("P18", "gpt2_medium", 2, 512, {"prec": "fp32"}),
    ("P19", "mixtral_l", 4, 1024, {}),
    ("P20", "qwen3moe_64", 1, 2048, {"opt": "fused"}),
    ("P21", "olmo2_1b", 2, 2048, {}),
    ("P22", "granite_2b", 2, 2048, {}),
    ("P23", "starcoder2_3b", 1, 4096, {}),
    ("P24", "llama_8b", 1, 8192, {"opt": "sgd", "gc": 1}),
    ("P25", "llama_1b", 1, 32768, {"opt": "fused", "gc": 1}),
    ("P26", "qwen2_05b", 1, 256, {"opt": "fused"}),
    ("P27", "pythia_160m", 1, 64, {}),
    ("P28", "llama_3b", 1, 1024, {"lora": 16}),
    # Predicted after the first 38 of these were measured, before these were.
    ("R01", "qwen3_06b", 1, 1024, {"opt": "fused", "gc": 1}),
    ("R02", "gemma2_2b", 1, 1024, {"opt": "fused", "gc": 1}),
    ("R03", "llama_110m", 2, 256, {"gc": 1}),
    ("R04", "phi_15", 1, 256, {}),
    ("R05", "gpt2_large", 1, 512, {}),
    ("R06", "qwen3moe_s", 1, 512, {}),
    ("R07", "mixtral_s", 1, 1024, {"opt": "fused"}),
    ("R08", "qwen3_06b", 1, 512, {"lora": 8}),
    ("R09", "granite_2b", 1, 256, {"opt": "sgd"}),
    ("R10", "llama_1b", 2, 1024, {"gc": 1}),
    ("R11", "qwen2_15b", 1, 2048, {"lora": 16, "gc": 1}),
    ("R12", "olmo2_1b", 1, 512, {"prec": "amp"}),
)
ANSWERS: tuple[tuple[Any, ...], ...] = (
    ("Q01", "llama_3b", 1, 256),
    ("Q02", "llama_8b", 8, 1024),
    ("Q03", "qwen2_3b", 1, 1024),
    ("Q04", "qwen3_17b", 16, 512),
    ("Q05", "gemma2_2b", 2, 512),
    ("Q06", "phi3_mini", 4, 512),
    ("Q07", "gpt2_medium", 1, 256),
    ("Q08", "mixtral_l", 1, 512),
    ("Q09", "qwen3moe_64", 4, 256),
    ("Q10", "pythia_69b", 8, 512),
    ("Q11", "mistral_12b", 1, 2048),
    ("Q12", "olmo2_1b", 1, 512),
    ("Q13", "llama_8b", 64, 2048),
    ("T01", "mistral_7b", 1, 512),
    ("T02", "qwen2_15b", 4, 256),
    ("T03", "qwen3_06b", 1, 1024),
    ("T04", "llama_600m", 2, 128),
    ("T05", "pythia_28b", 1, 256),
    ("T06", "gemma2_9b", 1, 256),
    ("T07", "mixtral_l", 8, 128),
    ("T08", "phi_2", 1, 256),
    ("T09", "granite_2b", 1, 512),
)
NEW_TOKENS = 32


def list_cases() -> list[dict[str, Any]]:
    """Return every case with its model's config, those of generation first: they are the fewest and the noisiest."""
    answers: list[dict[str, Any]] = [
        {"kind": "generate", "id": name, "model": model, "mb": rows, "seq": length, "new": NEW_TOKENS, "prec": "bf16"}
        for name, model, rows, length in ANSWERS
    ]
    steps: list[dict[str, Any]] = [
        {"kind": "train", "id": name, "model": model, "mb": rows, "seq": length, "prec": "bf16", "opt": "adamw", **more}
        for name, model, rows, length, more in STEPS
    ]
    return [{**case, "config": MODELS[case["model"]]} for case in [*answers, *steps]]
