"""Record what real modules allocate: one training step of small models on the CPU, births and deaths of storages.

Run it with an interpreter that has torch and transformers; it writes traces.json beside itself. The tests compare
the engine's tape with these numbers; they need no torch.
"""

from __future__ import annotations

import gc
import json
import random
import sys
import weakref
from pathlib import Path
from typing import Any

import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

CLASSES = {
    "llama": "LlamaConfig", "mistral": "MistralConfig", "qwen2": "Qwen2Config", "qwen3": "Qwen3Config",
    "gemma": "GemmaConfig", "gemma2": "Gemma2Config", "gemma3_text": "Gemma3TextConfig",
    "phi3": "Phi3Config", "gpt2": "GPT2Config", "mixtral": "MixtralConfig",
    "qwen2_moe": "Qwen2MoeConfig", "qwen3_moe": "Qwen3MoeConfig",
}  # fmt: skip


class Meter(TorchDispatchMode):
    """Bytes of the storages that live, and the most there were."""

    def __init__(self) -> None:
        super().__init__()
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
        out = func(*args, **(kwargs or {}))
        for leaf in tree_leaves(out):
            if isinstance(leaf, torch.Tensor):
                self.add(leaf)
        return out

    def turn(self) -> list[int]:
        """The peak since the last turn, and what lives now."""
        peak, self.peak = self.peak, self.now
        return [peak, self.now]


def shapes(family: str, dice: random.Random) -> dict[str, Any]:
    """A small random config."""
    heads = dice.choice([2, 4, 8])
    size = dice.choice([16, 32])
    config: dict[str, Any] = {
        "hidden_size": heads * size, "num_attention_heads": heads, "num_hidden_layers": dice.choice([2, 3]),
        "intermediate_size": dice.choice([128, 192, 320]), "vocab_size": dice.choice([512, 1000, 1536]),
        "max_position_embeddings": 512, "tie_word_embeddings": dice.choice([True, False]),
    }  # fmt: skip
    if family == "gpt2":
        config = {
            "n_embd": heads * size, "n_head": heads, "n_layer": dice.choice([2, 3]), "vocab_size": config["vocab_size"],
            "n_positions": 256, "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
        }  # fmt: skip
        return config
    config["num_key_value_heads"] = dice.choice([1, 2, heads])
    if family.startswith(("gemma", "qwen3")):
        config["head_dim"] = size
    if family == "mixtral":
        config.update(num_local_experts=4, num_experts_per_tok=2)
    if family.startswith("qwen") and family.endswith("moe"):
        config.update(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=64, norm_topk_prob=True)
        config.update({"shared_expert_intermediate_size": 96} if family == "qwen2_moe" else {})
    if family in ("mistral", "mixtral", "phi3"):
        config["sliding_window"] = None
    if family == "phi3":
        config["pad_token_id"] = 0
    return config


def measure(family: str, config: dict[str, Any], half: bool, checkpointing: bool) -> dict[str, Any]:
    made = getattr(transformers, CLASSES[family])(**config)
    kinds = {"attn_implementation": "eager", "dtype": torch.bfloat16 if half else torch.float32}
    model = transformers.AutoModelForCausalLM.from_config(made, **kinds)
    model.train()
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
    meter = Meter()
    for tensor in (*model.parameters(), *model.buffers()):
        meter.add(tensor)
    static, batch, seq = meter.now, 2, 48
    ids = torch.randint(1, made.vocab_size, (batch, seq))
    found: dict[str, Any] = {"static": static, "parameters": sum(p.numel() for p in model.parameters())}
    with meter:
        meter.add(ids)
        for step in range(2):
            meter.turn()
            loss = model(input_ids=ids, labels=ids, use_cache=False).loss
            found[f"fwd{step}"] = meter.turn()
            loss.backward()
            del loss
            found[f"bwd{step}"] = meter.turn()
            model.zero_grad(set_to_none=True)
    return found


def main() -> None:
    dice = random.Random(8)
    rows = []
    torch.set_num_threads(1)
    families = sys.argv[1:] or CLASSES
    for family in families:
        for number in range(4):
            config = shapes(family, dice)
            half, checkpointing = number % 2 == 1, number >= 2
            try:
                found = measure(family, config, half, checkpointing)
            except Exception as wrong:
                print(family, number, type(wrong).__name__, str(wrong)[:200], file=sys.stderr)
                continue
            gc.collect()
            rows.append(
                {"config": {"model_type": family, **config}, "half": half, "checkpointing": checkpointing, **found}
            )
            print(family, number, found, file=sys.stderr)
    text = "[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n"
    Path(__file__).with_name("traces.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
