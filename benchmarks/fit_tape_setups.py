"""The small models and set-ups that fit_tape_diff.py plays: families, named set-ups, and the axes of drawn combinations."""

from __future__ import annotations

import random
from itertools import combinations, product
from typing import Any

COMMON = {
    "hidden_size": 128, "num_attention_heads": 8, "num_hidden_layers": 3, "intermediate_size": 320, "vocab_size": 1000,
    "max_position_embeddings": 512, "num_key_value_heads": 2, "tie_word_embeddings": False,
}  # fmt: skip
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 96}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {},
    "mistral": {"sliding_window": 24},
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {"head_dim": 32, "tie_word_embeddings": True},
    "gemma": {"head_dim": 32, "tie_word_embeddings": True},
    "gemma2": {"head_dim": 32, "tie_word_embeddings": True, "sliding_window": 24},
    "gemma3_text": {"head_dim": 32, "tie_word_embeddings": True, "sliding_window": 24, "num_hidden_layers": 6},
    "phi3": {"pad_token_id": 0, "sliding_window": None},
    "gpt2": {},
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
    "qwen2_moe": {**MOE, "shared_expert_intermediate_size": 160},
    "qwen3_moe": {**MOE, "head_dim": 32, "norm_topk_prob": True},
}  # fmt: skip
GPT2 = {"n_embd": 128, "n_head": 8, "n_layer": 3, "vocab_size": 1000, "n_positions": 256}
LORA = {"method": "lora", "lora_r": 8}
SETUPS: dict[str, dict[str, Any]] = {
    "plain": {},
    "fp32": {"precision": "fp32"},
    "eager": {"attention": "eager"},
    "padded": {"padded": True},
    "padded-eager": {"padded": True, "attention": "eager"},
    "padded-checkpoint": {"padded": True, "checkpointing": "nonreentrant"},
    "checkpoint": {"checkpointing": "nonreentrant"},
    "reentrant": {"checkpointing": "reentrant"},
    "reentrant-padded": {"checkpointing": "reentrant", "padded": True},
    "amp": {"precision": "amp-bf16"},
    "amp-eager": {"precision": "amp-bf16", "attention": "eager"},
    "amp-padded": {"precision": "amp-bf16", "padded": True},
    "amp-checkpoint": {"precision": "amp-bf16", "checkpointing": "nonreentrant"},
    "amp-reentrant": {"precision": "amp-bf16", "checkpointing": "reentrant"},
    "dpo": {"dpo": True},
    "dpo-checkpoint": {"dpo": True, "checkpointing": "nonreentrant"},
    "dpo-amp": {"dpo": True, "precision": "amp-bf16"},
    "dpo-padded-fp32": {"dpo": True, "padded": True, "precision": "fp32"},
    "dpo-lora": {"dpo": True, **LORA},
    "accumulation": {"accumulation": 3},
    "accumulation-checkpoint": {"accumulation": 2, "checkpointing": "nonreentrant"},
    "amp-accumulation": {"accumulation": 3, "precision": "amp-bf16"},
    "kept": {"keep_outputs": True},
    "kept-amp": {"keep_outputs": True, "precision": "amp-bf16"},
    "adamw": {"optimizer": "adamw"},
    "adamw-fp32": {"optimizer": "adamw", "precision": "fp32"},
    "forloop": {"optimizer": "adamw_forloop"},
    "momentum": {"optimizer": "sgd_momentum"},
    "adafactor": {"optimizer": "adafactor"},
    "adafactor-fp32": {"optimizer": "adafactor", "precision": "fp32"},
    "adafactor-torch": {"optimizer": "adafactor_torch", "precision": "fp32"},
    "lora": LORA,
    "lora-fp32": {**LORA, "precision": "fp32"},
    "lora-bf16": {**LORA, "lora_dtype": "bf16"},
    "lora-qv-dropout": {**LORA, "lora_targets": "qv", "lora_dropout": 0.1},
    "lora-dropout": {**LORA, "lora_dropout": 0.1},
    "lora-checkpoint": {**LORA, "checkpointing": "nonreentrant"},
    "lora-reentrant": {**LORA, "checkpointing": "reentrant"},
    "lora-amp": {**LORA, "precision": "amp-bf16"},
    "lora-autocast": {**LORA, "autocast": "bf16"},
    "lora-autocast-checkpoint": {**LORA, "autocast": "bf16", "checkpointing": "nonreentrant"},
    "dropout": {"drop": True},
    "dropout-eager": {"drop": True, "attention": "eager"},
    "dropout-amp": {"drop": True, "precision": "amp-bf16"},
    "dropout-checkpoint": {"drop": True, "checkpointing": "nonreentrant"},
    "generate": {"task": "generate", "new_tokens": 6},
    "generate-eager": {"task": "generate", "new_tokens": 6, "attention": "eager"},
    "generate-static": {"task": "generate", "new_tokens": 6, "cache": "static"},
    "generate-fp32": {"task": "generate", "new_tokens": 6, "precision": "fp32"},
}  # fmt: skip
DROPS = {
    "gpt2": {"resid_pdrop": 0.1, "embd_pdrop": 0.1, "attn_pdrop": 0.1},
    "phi3": {"resid_pdrop": 0.1, "attention_dropout": 0.1},
}
ODD: dict[str, dict[str, Any]] = {
    "as-is": {}, "tied": {"tie_word_embeddings": True}, "untied": {"tie_word_embeddings": False},
    "bias": {"attention_bias": True}, "head_dim": {"head_dim": 24}, "one-kv": {"num_key_value_heads": 1},
    "no-window": {"sliding_window": None},
    "wide": {"intermediate_size": 777, "vocab_size": 1777}, "deep": {"num_hidden_layers": 5, "n_layer": 5},
}  # fmt: skip
NONE: dict[str, Any] = {}
AXES: dict[str, dict[str, dict[str, Any]]] = {
    "shape": {name: {"odd": name} for name in ODD},
    "drop": {"": NONE, "drop": {"drop": True}},
    "precision": {name: {"precision": name} for name in ("fp32", "bf16", "fp16", "amp-bf16", "amp-fp16")},
    "optimizer": {name: {"optimizer": name} for name in (
        "adamw", "adamw_fused", "adamw_forloop", "sgd", "sgd_momentum", "adafactor", "adafactor_torch")},
    "checkpointing": {name: {"checkpointing": name} for name in ("none", "nonreentrant", "reentrant")},
    "attention": {name: {"attention": name} for name in ("sdpa", "eager")},
    "accumulation": {str(n): {"accumulation": n} for n in (1, 2, 3)},
    "kept": {"": NONE, "kept": {"keep_outputs": True}},
    "padded": {"": NONE, "padded": {"padded": True}},
    "dpo": {"": NONE, "dpo": {"dpo": True}},
    "method": {
        "full": NONE, "lora": LORA, "qv": {**LORA, "lora_targets": "qv"}, "lora16": {**LORA, "lora_dtype": "bf16"},
        "lora-drop": {**LORA, "lora_dropout": 0.1},
    },
    "clip": {"": NONE, "no-clip": {"clip": False}},
    "size": {"2x48": NONE, "3x77": {"micro_batch": 3, "seq": 77}, "1x131": {"micro_batch": 1, "seq": 131}},
}  # fmt: skip
GENERATION: dict[str, dict[str, dict[str, Any]]] = {
    "task": {"generate": {"task": "generate", "new_tokens": 6}, "generate9": {"task": "generate", "new_tokens": 9}},
    "cache": {"": NONE, "static": {"cache": "static"}},
    **{axis: AXES[axis] for axis in ("shape", "attention", "size")},
    "precision": {name: {"precision": name} for name in ("fp32", "bf16", "fp16")},
}  # fmt: skip
NO_DROPS = {"gpt2": {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}}


def configs(family: str, setup: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    fields = dict(setup)
    if fields.get("lora_dtype") == "bf16":  # peft leaves adapters in the type of the model
        fields["lora_dtype"] = {"bf16": "bf16", "fp16": "fp16"}.get(fields.get("precision", "bf16"), "fp32")
    odd = ODD[fields.pop("odd", "as-is")]
    config = {**(GPT2 if family == "gpt2" else COMMON | FAMILIES[family]), "model_type": family}
    config |= odd if family != "gpt2" else {k: v for k, v in odd.items() if k in GPT2}
    config = {k: v for k, v in config.items() if v is not None or k == "sliding_window"}
    if fields.pop("drop", False):
        return config | DROPS.get(family, {"attention_dropout": 0.1}), fields
    return config | NO_DROPS.get(family, {}), fields


def paired(axes: dict[str, dict[str, dict[str, Any]]], seed: int) -> dict[str, dict[str, Any]]:
    """Drawn set-ups in which every two values of two axes meet at least once."""
    draw, names = random.Random(seed), list(axes)
    values = [[(axis, value) for value in axes[axis]] for axis in names]
    left = {frozenset(two) for a, b in combinations(values, 2) for two in product(a, b)}
    found: dict[str, dict[str, Any]] = {}
    while left:
        start = draw.choice(sorted(left, key=sorted))
        best, most = (), 0
        for _ in range(40):
            one = tuple(next((v for v in vs if v in start), None) or draw.choice(vs) for vs in values)
            covers = sum(frozenset(two) in left for two in combinations(one, 2))
            if covers > most:
                best, most = one, covers
        left -= {frozenset(two) for two in combinations(best, 2)}
        name = " ".join(value for _, value in best if value)
        found[name] = {k: v for axis, value in best for k, v in axes[axis][value].items()}
    return found
