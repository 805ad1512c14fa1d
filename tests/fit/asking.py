"""A small model and a file that trains it, and the answer to a command about them."""

from __future__ import annotations

import json

from tests.running import gpuready

SMALL = {
    "model_type": "llama", "hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 4, "vocab_size": 32000, "tie_word_embeddings": False, "dtype": "bfloat16",
}  # fmt: skip
AXOLOTL = """
base_model: ./model
sequence_len: 4096
sample_packing: true
micro_batch_size: 8
gradient_accumulation_steps: 2
optimizer: adamw_torch
bf16: true
flash_attention: true
"""


def document(*words: str, cwd=None) -> tuple[dict, int]:
    ran = gpuready("fit", *words, "--json", cwd=cwd)
    assert ran.out, ran.err
    return json.loads(ran.out), ran.code
