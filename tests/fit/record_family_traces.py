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
WINDOWS = {"sliding_window": 16, "layer_types": ["sliding_attention", "sliding_attention", "full_attention"]}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "olmo2": ("causal", BASE),
    "olmo3": ("causal", {**BASE, **WINDOWS}),
    "granite": ("causal", {**BASE, "embedding_multiplier": 12.0, "residual_multiplier": 0.22, "logits_scaling": 8.0}),
    "granitemoe": ("causal", {**BASE, **EXPERTS}),
    "starcoder2": ("causal", {**BASE, "sliding_window": None}),
    "smollm3": ("causal", {**BASE, "no_rope_layers": [1, 0, 1]}),
    "glm": ("causal", {**BASE, "head_dim": 32}),
    "glm4": ("causal", {**BASE, "head_dim": 32}),
    "gpt_oss": ("causal", {**BASE, **EXPERTS, "head_dim": 32, "sliding_window": 16}),
    "olmoe": ("causal", {**BASE, "num_experts": 8, "num_experts_per_tok": 2}),
}
AUTO = {
    "causal": "AutoModelForCausalLM", "masked": "AutoModelForMaskedLM", "seq2seq": "AutoModelForSeq2SeqLM",
    "image": "AutoModelForImageClassification", "audio": "AutoModelForSpeechSeq2Seq",
    "rows": "AutoModelForSequenceClassification", "tokens": "AutoModelForTokenClassification",
}  # fmt: skip
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


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    path.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", encoding="utf-8")


def main() -> None:
    path = Path(__file__).with_name("family_traces.json")
    asked = sys.argv[1:] or list(CASES)
    kept = [row for row in json.loads(path.read_text(encoding="utf-8")) if row["config"]["model_type"] not in asked]
    rows = kept + [row for family in asked for row in record_family(family)]
    write_rows(path, rows)


if __name__ == "__main__":
    main()
