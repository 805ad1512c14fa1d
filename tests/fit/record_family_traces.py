"""Record what the modules of further families allocate: one training step of small models on torch's meta device.

Run it with an interpreter that has torch and transformers 5.17; it writes family_traces.json beside itself: all rows, or
with names of families those of them, the others as they are. The tests compare the engine's tape with these numbers; they
need no torch.
"""

from __future__ import annotations

import gc
import json
import sys
import weakref
from pathlib import Path
from typing import Any

import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

BASE = {
    "hidden_size": 128, "num_attention_heads": 4, "num_hidden_layers": 3, "intermediate_size": 320, "vocab_size": 1000,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "pad_token_id": 0,
}  # fmt: skip
LATENT = {
    "moe_intermediate_size": 64, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "n_group": 4,
    "topk_group": 2, "kv_lora_rank": 48, "q_lora_rank": 56, "qk_rope_head_dim": 16, "qk_nope_head_dim": 24,
    "v_head_dim": 56, "first_k_dense_replace": 1, "num_key_value_heads": 4,
}  # fmt: skip
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
SPEECH = {
    "d_model": 128, "encoder_layers": 3, "decoder_layers": 3, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 320, "decoder_ffn_dim": 320, "vocab_size": 1000, "dropout": 0.0, "pad_token_id": 0,
    "decoder_start_token_id": 1, "eos_token_id": 2, "bos_token_id": 1,
}  # fmt: skip
TRANSLATOR = {
    **SPEECH,
    "max_position_embeddings": 128,
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
    "attention_dropout": 0.0,
}
T5 = {
    "d_model": 128, "d_kv": 32, "d_ff": 320, "num_layers": 3, "num_heads": 4, "vocab_size": 1000, "pad_token_id": 0,
    "decoder_start_token_id": 1, "dropout_rate": 0.0,
}  # fmt: skip
DELTA = {
    "head_dim": 32, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 32,
    "num_hidden_layers": 4,
}  # fmt: skip
SPARSE = {
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 64,
    "shared_expert_intermediate_size": 64,
}
DISTILLED = {
    "dim": 128, "n_heads": 4, "n_layers": 3, "hidden_dim": 320, "vocab_size": 1000, "dropout": 0.0, "attention_dropout": 0.0,
    "pad_token_id": 0,
}  # fmt: skip
WINDOWS = {"sliding_window": 16, "layer_types": ["sliding_attention", "sliding_attention", "full_attention"]}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "olmo2": ("causal", BASE),
    "olmo3": ("causal", {**BASE, **WINDOWS}),
    "granite": ("causal", {**BASE, "embedding_multiplier": 12.0, "residual_multiplier": 0.22, "logits_scaling": 8.0}),
    "granitemoe": ("causal", {**BASE, **EXPERTS}),
    "cohere": ("causal", {**BASE, "use_qk_norm": True}),
    "cohere2": ("causal", {**BASE, **WINDOWS, "head_dim": 32}),
    "starcoder2": ("causal", {**BASE, "sliding_window": None}),
    "falcon": ("causal", {k: v for k, v in BASE.items() if k not in ("num_key_value_heads", "intermediate_size")}),
    "smollm3": ("causal", {**BASE, "no_rope_layers": [1, 0, 1]}),
    "glm": ("causal", {**BASE, "head_dim": 32}),
    "glm4": ("causal", {**BASE, "head_dim": 32}),
    "glm4_moe": (
        "causal",
        {**BASE, "head_dim": 32, "moe_intermediate_size": 64, "n_routed_experts": 8, "num_experts_per_tok": 2},
    ),
    "gpt_oss": ("causal", {**BASE, **EXPERTS, "head_dim": 32, "sliding_window": 16}),
    "deepseek_v2": ("causal", {**BASE, **LATENT, "q_lora_rank": None, "topk_method": "greedy"}),
    "deepseek_v3": ("causal", {**BASE, **LATENT}),
    "llama4_text": (
        "causal",
        {**BASE, "head_dim": 32, "intermediate_size_mlp": 192, "num_local_experts": 4, "num_hidden_layers": 4},
    ),
    "bert": ("masked", {**BASE, **NO_DROPOUT}),
    "roberta": ("masked", {**BASE, **NO_DROPOUT}),
    "modernbert": ("masked", {**BASE, "local_attention": 16}),
    "vit": ("image", {**BASE, "image_size": 32, "patch_size": 8}),
    "whisper": ("audio", {**SPEECH, "max_source_positions": 100, "max_target_positions": 64}),
    "bart": ("seq2seq", {**SPEECH, "max_position_embeddings": 128}),
    "arcee": ("causal", BASE),
    "exaone4": ("causal", {**BASE, "sliding_window": 16}),
    "olmoe": ("causal", {**BASE, "num_experts": 8, "num_experts_per_tok": 2}),
    "seed_oss": ("causal", {**BASE, "head_dim": 32, "residual_dropout": 0.0, "attention_dropout": 0.0}),
    "stablelm": ("causal", BASE),
    "gpt_neo": (
        "causal",
        {
            "hidden_size": 128,
            "num_heads": 4,
            "num_layers": 2,
            "attention_types": [[["global", "local"], 1]],
            "vocab_size": 1000,
        },
    ),
    "qwen3_next": ("causal", {**BASE, **DELTA, **SPARSE}),
    "qwen3_5_text": ("causal", {**BASE, **DELTA}),
    "qwen3_5_moe_text": ("causal", {**BASE, **DELTA, **SPARSE}),
    "mamba2": (
        "causal",
        {
            "hidden_size": 128,
            "num_hidden_layers": 3,
            "vocab_size": 1000,
            "state_size": 16,
            "num_heads": 4,
            "head_dim": 64,
            "n_groups": 2,
            "chunk_size": 32,
        },
    ),
    "t5": ("seq2seq", T5),
    "mt5": ("seq2seq", {**T5, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}),
    "umt5": ("seq2seq", {**T5, "feed_forward_proj": "gated-gelu"}),
    "mbart": ("seq2seq", TRANSLATOR),
    "pegasus": ("seq2seq", TRANSLATOR),
    "marian": ("seq2seq", {**TRANSLATOR, "decoder_vocab_size": 1000}),
    "m2m_100": ("seq2seq", TRANSLATOR),
    "distilbert": ("masked", DISTILLED),
    "xlm-roberta": ("masked", {**BASE, **NO_DROPOUT}),
    "camembert": ("masked", {**BASE, **NO_DROPOUT}),
}
UNCHECKPOINTED = ("bart", "mbart", "pegasus", "marian", "m2m_100")  # the engine refuses it
LEFT_OUT = (("qwen3_5_text", False, False),)  # the engine refuses it
AUTO = {
    "causal": "AutoModelForCausalLM", "masked": "AutoModelForMaskedLM", "seq2seq": "AutoModelForSeq2SeqLM",
    "image": "AutoModelForImageClassification", "audio": "AutoModelForSpeechSeq2Seq",
    "rows": "AutoModelForSequenceClassification", "tokens": "AutoModelForTokenClassification",
}  # fmt: skip
CLASSIFIERS = {  # written to classifier_traces.json
    "bert": ("BertFor", {**BASE, **NO_DROPOUT}),
    "roberta": ("RobertaFor", {**BASE, **NO_DROPOUT}),
    "distilbert": ("DistilBertFor", {**DISTILLED, "seq_classif_dropout": 0.0}),
}
BATCH, SEQ = 2, 48


class Meter(TorchDispatchMode):
    """Bytes of the storages that live, and the most there were. Questions to values get ``answer``."""

    def __init__(self, answer: bool) -> None:
        super().__init__()
        self.answer = answer
        self.live: dict[int, int] = {}
        self.now = self.peak = 0

    def add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.live or not storage.nbytes():
            return
        self.live[key] = storage.nbytes()
        self.now += storage.nbytes()
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self.drop, key)

    def drop(self, key: int) -> None:
        self.now -= self.live.pop(key, 0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if "_local_scalar_dense" in str(func):
            return self.answer
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.add(leaf)
        return out

    def turn(self) -> list[int]:
        """The peak since the last turn, and what lives now."""
        peak, self.peak = self.peak, self.now
        return [peak, self.now]


def make_inputs(kind: str, config: Any, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    ids = torch.zeros((BATCH, SEQ), dtype=torch.long)
    if kind == "image":
        size = (BATCH, config.num_channels, config.image_size, config.image_size)
        return {"pixel_values": torch.zeros(size, dtype=dtype), "labels": torch.zeros(BATCH, dtype=torch.long)}
    if kind == "rows":
        return {"input_ids": ids, "labels": torch.zeros(BATCH, dtype=torch.long)}
    if kind == "audio":
        size = (BATCH, config.num_mel_bins, 2 * config.max_source_positions)
        return {"input_features": torch.zeros(size, dtype=dtype), "labels": ids}
    return {"input_ids": ids, "labels": ids}


def measure(kind: str, family: str, fields: dict[str, Any], half: bool, checkpointing: bool) -> dict[str, Any]:
    config = transformers.AutoConfig.for_model(family, **fields)
    dtype = torch.bfloat16 if half else torch.float32
    model = getattr(transformers, AUTO[kind]).from_config(config, attn_implementation="eager", dtype=dtype)
    model.train()
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    meter = Meter(
        kind in ("causal", "masked", "image", "rows", "tokens")
    )  # no padding there; and elsewhere no layer is dropped
    for tensor in (*model.parameters(), *model.buffers()):
        meter.add(tensor)
    found: dict[str, Any] = {"static": meter.now, "parameters": sum(p.numel() for p in model.parameters())}
    inputs = make_inputs(kind, config, dtype)
    more = {} if kind in ("masked", "image", "rows", "tokens") else {"use_cache": False}
    with meter:
        for tensor in inputs.values():
            meter.add(tensor)
        for step in range(2):
            meter.turn()
            loss = model(**inputs, **more).loss
            found[f"fwd{step}"] = meter.turn()
            loss.backward()
            del loss
            found[f"bwd{step}"] = meter.turn()
            model.zero_grad(set_to_none=True)
    return found


def record_family(family: str) -> list[dict[str, Any]]:
    kind, fields = CASES[family]
    rows = []
    for half, checkpointing in ((False, False), (True, False), (True, True)):
        if (family, half, checkpointing) in LEFT_OUT or (family in UNCHECKPOINTED and checkpointing):
            continue
        try:
            with torch.device("meta"):
                found = measure(kind, family, fields, half, checkpointing)
        except RuntimeError as wrong:  # grouped products of experts exist in bf16 only
            print(family, half, str(wrong)[:100], file=sys.stderr)
            continue
        gc.collect()
        config = {"model_type": family, **fields}
        rows.append({"config": config, "half": half, "checkpointing": checkpointing, **found})
    return rows


def record_classifiers() -> list[dict[str, Any]]:
    rows = []
    for family, (name, fields) in CLASSIFIERS.items():
        for kind, task in (("rows", "SequenceClassification"), ("tokens", "TokenClassification")):
            with torch.device("meta"):
                found = measure(kind, family, {**fields, "num_labels": 5}, half=True, checkpointing=False)
            config = {"model_type": family, "architectures": [name + task], **fields, "num_labels": 5}
            rows.append({"config": config, "half": True, "checkpointing": False, **found})
    return rows


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", encoding="utf-8")


def main() -> None:
    path = Path(__file__).with_name("family_traces.json")
    asked = sys.argv[1:] or list(CASES)
    kept = [row for row in json.loads(path.read_text(encoding="utf-8")) if row["config"]["model_type"] not in asked]
    rows = kept + [row for family in asked for row in record_family(family)]
    write_rows(path, rows)
    write_rows(path.with_name("classifier_traces.json"), record_classifiers())


if __name__ == "__main__":
    main()
