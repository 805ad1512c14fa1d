"""Predicted tokens a second of GPUs that were not measured here, against figures that others published.

    python benchmarks/step_time_public.py [-o TABLE.md]

The published runs are those of MosaicML's MPT models on 8 GPUs under FSDP (llm-foundry, scripts/train/benchmarking/README.md at
061f2c7): LayerNorm, GELU, full attention by flash-attention, bf16, of 2023. They are predicted as GPT-NeoX of the same sizes, by the data sheet.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from gpuready.catalog.gpus import find_gpu
from gpuready.fit import FitJob
from gpuready.fit.job.records import GpuCard
from gpuready.fit.time.device_speed import speed_from_row
from gpuready.fit.time.prediction import predict_time
from gpuready.model.fit import TimePrediction

SIZES = {
    "760m": (1536, 24, 12),
    "1b": (2048, 24, 16),
    "3b": (2560, 32, 20),
    "7b": (4096, 32, 32),
    "13b": (5120, 40, 40),
}
# GPU, model, tokens of a sequence, sequences at once, micro-steps, checkpointing, published tokens a second of one GPU
PUBLISHED = (
    ("h100", "13b", 2048, 2, 1, False, 4792), ("h100", "13b", 4096, 10, 3, True, 4717), ("h100", "7b", 2048, 6, 1, False, 10643),
    ("h100", "7b", 4096, 16, 2, True, 8611), ("h100", "7b", 8192, 8, 2, True, 6935), ("h100", "3b", 4096, 5, 6, False, 20964),
    ("h100", "3b", 1024, 20, 6, False, 27046), ("h100", "1b", 2048, 14, 1, False, 45455), ("h100", "1b", 4096, 7, 4, False, 38535),
    ("h100", "760m", 2048, 24, 2, False, 63147), ("h100", "760m", 1024, 48, 2, False, 78581),
    ("a100-80gb", "13b", 2048, 2, 3, False, 2262), ("a100-80gb", "13b", 4096, 10, 3, True, 2060), ("a100-80gb", "7b", 2048, 6, 2, False, 4641),
    ("a100-80gb", "7b", 4096, 16, 2, True, 3684), ("a100-80gb", "7b", 8192, 8, 2, True, 3206), ("a100-80gb", "3b", 4096, 5, 6, False, 9457),
    ("a100-80gb", "3b", 2048, 10, 2, False, 10811), ("a100-80gb", "1b", 2048, 14, 4, False, 20513), ("a100-80gb", "760m", 2048, 24, 2, False, 32434),
    ("a100-40gb", "7b", 2048, 12, 4, True, 3679), ("a100-40gb", "3b", 4096, 2, 8, False, 8777),
)  # fmt: skip


def predict_run(gpu: str, size: str, seq: int, batch: int, micro_steps: int, checkpointing: bool) -> TimePrediction:
    hidden, layers, heads = SIZES[size]
    row = find_gpu(gpu)
    assert row is not None
    speed = speed_from_row(row)
    assert speed is not None
    model = {
        "model_type": "gpt_neox", "hidden_size": hidden, "intermediate_size": 4 * hidden, "num_hidden_layers": layers,
        "num_attention_heads": heads, "vocab_size": 50368, "use_parallel_residual": False, "tie_word_embeddings": False,
    }  # fmt: skip
    job = FitJob(
        model=model, micro_batch=batch, seq=seq, accumulation=micro_steps, world=8, fsdp=True, fp32_shards=True, attention="flash",
        checkpointing="nonreentrant" if checkpointing else "none",
    )  # fmt: skip
    return predict_time(job, GpuCard(row["name"], row["compute_capability"], 80 << 30), speed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output")
    output = parser.parse_args().output
    lines = ["| GPU | model | run | published tokens/s | predicted | error | range | inside |", "|---" * 8 + "|"]
    errors, inside = [], 0
    for gpu, size, seq, batch, micro_steps, checkpointing, published in PUBLISHED:
        found = predict_run(gpu, size, seq, batch, micro_steps, checkpointing)
        mine = found.tokens_per_second / 8
        low, high = (batch * seq * micro_steps / seconds for seconds in reversed(found.range))
        errors.append(mine / published - 1)
        inside += low <= published <= high
        what = f"{batch} x {seq} x {micro_steps}" + (", checkpointing" if checkpointing else "")
        within = "yes" if low <= published <= high else "no"
        lines.append(
            f"| {gpu} | {size} | {what} | {published} | {mine:.0f} | {errors[-1]:+.0%} | {low:.0f} to {high:.0f} | {within} |"
        )
    sizes = sorted(map(abs, errors))
    lines += [
        "",
        f"{inside} of {len(errors)} inside of the range; median error {statistics.median(sizes):.0%}, worst {sizes[-1]:.0%}",
    ]
    text = "\n".join(lines) + "\n"
    print(text)
    if output:
        Path(output).write_text(
            f"# Time of a step on GPUs that were not measured here\n\n{__doc__.split(chr(10) * 2)[2]}\n\n{text}"
        )


if __name__ == "__main__":
    main()
