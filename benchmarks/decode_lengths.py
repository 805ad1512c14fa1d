"""What a token costs at a length that was not seen before, and at one that was; with and without cuDNN's attention.

    python benchmarks/decode_lengths.py -o FILE [--layers 16]

Runs in an interpreter with torch and transformers, on a GPU. An answer is generated twice from prompts of several lengths: the first time every
token has a new length of keys, the second time none has.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

SIZES = {"hidden_size": 2048, "intermediate_size": 5632, "num_attention_heads": 16, "num_key_value_heads": 4}
NEW_TOKENS, VARIANTS = 24, ("as it is", "without cuDNN", "only math and flash")


def time_answer(torch: Any, model: Any, length: int) -> float:
    """Return the seconds of a token after the first."""
    tokens = torch.randint(5, 900, (1, length), device="cuda")
    spent = []
    for count in (1, 1 + NEW_TOKENS):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        with torch.no_grad():
            options = {"do_sample": False, "pad_token_id": 0, "eos_token_id": None}
            model.generate(tokens, max_new_tokens=count, min_new_tokens=count, **options)
        torch.cuda.synchronize()
        spent.append(time.perf_counter() - begun)
    return (spent[1] - spent[0]) / NEW_TOKENS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", default="decode-lengths.json")
    parser.add_argument("--layers", type=int, default=16)
    args = parser.parse_args()
    import torch
    import transformers

    config = transformers.AutoConfig.for_model("llama", **SIZES, num_hidden_layers=args.layers, vocab_size=32000)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    time_answer(torch, model, 16)
    rows = []
    for at, variant in enumerate((*VARIANTS, VARIANTS[0])):
        torch.backends.cuda.enable_cudnn_sdp(variant == VARIANTS[0])
        torch.backends.cuda.enable_mem_efficient_sdp(variant != VARIANTS[2])
        for base in (200, 900):
            length = base + 100 * at  # lengths that no variant before had
            rows.append({"variant": variant, "length": length, "first": time_answer(torch, model, length)})
            rows[-1]["again"] = time_answer(torch, model, length)
            print(json.dumps(rows[-1]), flush=True)
    found = {"torch": torch.__version__, "transformers": transformers.__version__, "layers": args.layers, "rows": rows}
    Path(args.output).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
