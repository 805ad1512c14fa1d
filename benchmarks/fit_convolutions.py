"""What cuDNN asks for beside the operands and the result of single convolutions, beside what ``fit --trace`` counts.

    python benchmarks/fit_convolutions.py measure FILE [--seconds 200] [--shard 0/1]   on a GPU; writes a line a convolution
    python benchmarks/fit_convolutions.py score [FILE]                                 shares of what is counted right

Convolutions are drawn at random from one seed: kinds, types, layouts, channels, sizes and batches. Rules were read from those of even
numbers; the record has some of the odd ones. Both commands run in an interpreter with torch.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
RECORD = HERE / "results" / "fit-convolutions-h200.jsonl"
sys.path.insert(0, str(HERE.parent / "src" / "gpuready" / "fit" / "scripts"))

SEED = 20261118
CHANNELS = (
    8, 16, 24, 32, 40, 48, 64, 80, 96, 112, 128, 144, 160, 192, 224, 256, 320, 384, 440, 512, 640, 768, 1024, 1536, 2048,
)  # fmt: skip
ODD_CHANNELS = (1, 2, 3, 4, 10, 12, 18, 21, 27, 36, 54, 100, 150, 241)
SIDES = (4, 7, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 224, 256)
ROWS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
LENGTHS = (50, 128, 499, 1000, 1500, 3200, 8000, 16000, 48000, 80000)
KINDS = {  # kernel, stride and padding of a side
    "pointwise": [(1, 1, 0)], "pointwise strided": [(1, 2, 0)], "three": [(3, 1, 1)], "three strided": [(3, 2, 1)], "wide": [(5, 1, 2), (7, 1, 3), (7, 2, 3)],
    "stem": [(3, 2, 1), (7, 2, 3), (5, 1, 2), (7, 4, 3)], "by channel": [(3, 1, 1), (5, 1, 2), (7, 1, 3), (3, 2, 1)], "grouped": [(3, 1, 1), (3, 2, 1), (1, 1, 0)],
    "patches": [(4, 4, 0), (14, 14, 0), (16, 16, 0), (2, 2, 0)], "transposed": [(2, 2, 0), (4, 2, 1)], "sound": [(3, 1, 1), (3, 2, 0), (10, 5, 0), (7, 3, 0)],
}  # fmt: skip
GRADIENTS = {"output": None, "input": [True, False, False], "weight": [False, True, False]}


def draw_convolution(draw: random.Random) -> dict[str, Any]:
    """Return one convolution, which may be too large."""
    kind = draw.choice(list(KINDS))
    kernel, stride, padding = draw.choice(KINDS[kind])
    channels, results = (draw.choice(CHANNELS if draw.random() < 0.88 else ODD_CHANNELS) for _ in range(2))
    side, dims, groups = draw.choice(SIDES), 1 if kind == "sound" else 2, 1
    if kind in ("stem", "patches"):
        channels, side = draw.choice((1, 3, 3, 4)), kernel * draw.choice((14, 16, 24, 28, 32))
    elif kind == "by channel":
        groups = results = channels = draw.choice(CHANNELS)
    elif kind == "grouped":
        groups = draw.choice((2, 3, 4, 8, 16, 32))
        channels = results = groups * draw.choice((4, 8, 16, 24, 32, 40, 48, 64, 128))
    elif kind == "sound":
        side = draw.choice(LENGTHS)
    transposed = kind == "transposed"
    first = (channels, results) if transposed else (results, channels // groups)
    return {
        "kind": kind, "dtype": draw.choice(("bfloat16", "bfloat16", "float32", "float16")), "x": [draw.choice(ROWS), channels, *[side] * dims],
        "weight": [*first, *[kernel] * dims], "stride": [stride] * dims, "padding": [padding] * dims, "dilation": [1] * dims, "groups": groups,
        "transposed": transposed, "last": dims == 2 and draw.random() < 0.25,
    }  # fmt: skip


def result_shape(one: dict[str, Any]) -> list[int]:
    sides = []
    sizes = zip(one["x"][2:], one["weight"][2:], one["stride"], one["padding"], one["dilation"], strict=True)
    for side, kernel, stride, padding, dilation in sizes:
        reach = dilation * (kernel - 1) + 1
        sides.append(
            (side - 1) * stride - 2 * padding + reach
            if one["transposed"]
            else (side + 2 * padding - reach) // stride + 1
        )
    channels = one["weight"][1] * one["groups"] if one["transposed"] else one["weight"][0]
    return [one["x"][0], channels, *sides]


def list_convolutions(shard: int, shards: int) -> Iterator[tuple[int, dict[str, Any]]]:
    draw, number = random.Random(SEED), 0
    while True:
        one = draw_convolution(draw)
        if min(result_shape(one)) < 1 or max(prod(one["x"]), prod(result_shape(one)), prod(one["weight"])) > 80e6:
            continue
        if number % shards == shard:
            yield number, one
        number += 1


def make_operands(one: dict[str, Any], device: str) -> tuple[Any, Any, Any]:
    """Return input, weight and a gradient of the result."""
    import torch

    shapes = one["x"], one["weight"], result_shape(one)
    layout = torch.channels_last if one["last"] else torch.contiguous_format
    made = [torch.zeros(shape, dtype=getattr(torch, one["dtype"]), device=device) for shape in shapes]
    x, weight, grad = (tensor.to(memory_format=layout) for tensor in made)
    return x, weight, grad


def list_settings(one: dict[str, Any]) -> list[Any]:
    zeros = [0] * len(one["stride"])
    return [one["stride"], one["padding"], one["dilation"], one["transposed"], zeros, one["groups"]]


def measure_one(one: dict[str, Any]) -> list[int]:
    """Return the bytes of the workspace of the result and of both gradients, from the allocator's own record."""
    import torch

    x, weight, grad = make_operands(one, "cuda")
    sizes = []
    for what, mask in GRADIENTS.items():
        torch.cuda.memory._record_memory_history(enabled=None)
        torch.cuda.memory._record_memory_history(enabled="all", context=None)
        if mask is None:
            made = torch.ops.aten.convolution(x, weight, None, *list_settings(one))
        else:
            made = torch.ops.aten.convolution_backward(grad, x, weight, None, *list_settings(one), mask)
        births = [e["size"] for e in torch.cuda.memory._snapshot()["device_traces"][0] if e["action"] == "alloc"]
        own = {"output": grad, "input": x, "weight": weight}[what]
        births.remove(own.numel() * own.element_size())
        sizes.append(sum(births))
        del made
    return sizes


def measure(path: str, seconds: float, shard: str) -> None:
    end, (first, count) = time.monotonic() + seconds, map(int, shard.split("/"))
    with Path(path).open("w", encoding="utf-8") as file:
        for number, one in list_convolutions(first, count):
            if time.monotonic() > end:
                return
            file.write(json.dumps({"number": number, **one, "workspace": measure_one(one)}) + "\n")


def predict_sizes(one: dict[str, Any]) -> list[int]:
    """Return what ``fit --trace`` counts for the three."""
    from convolutions import Convolution

    x, weight, grad = make_operands(one, "meta")
    forward = Convolution("convolution", (x, weight, None, *list_settings(one)))
    back = Convolution("convolution_backward", (grad, x, weight, None, *list_settings(one), [True] * 3))
    return [forward.workspace_size(grad), *(int(back.workspace_size(None, what)) for what in ("input", "weight"))]


def score(path: str = str(RECORD)) -> dict[str, dict[str, float]]:
    """Return for each result the shares of workspaces that are right to 2 and to 10 % of the operands (at least of 16 MiB)."""
    errors: dict[str, list[float]] = {name: [] for name in GRADIENTS}
    for one in map(json.loads, Path(path).read_text(encoding="utf-8").splitlines()):
        wide = 4 if one["dtype"] == "float32" else 2
        whole = max(16 << 20, wide * sum(map(prod, (one["x"], one["weight"], result_shape(one)))))
        for name, said, seen in zip(GRADIENTS, predict_sizes(one), one["workspace"], strict=True):
            errors[name].append(abs(said - seen) / whole)
    return {
        name: {"convolutions": len(all_), **{f"{most:.0%}": sum(e < most for e in all_) / len(all_) for most in (0.02, 0.1)}}
        for name, all_ in errors.items()
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("what", choices=("measure", "score"))
    parser.add_argument("file", nargs="?", default=str(RECORD))
    parser.add_argument("--seconds", type=float, default=200.0)
    parser.add_argument("--shard", default="0/1")
    args = parser.parse_args()
    if args.what == "measure":
        measure(args.file, args.seconds, args.shard)
    else:
        for name, row in score(args.file).items():
            print(f"{name:8}{row['convolutions']:6} {row['2%']:6.1%} right to 2 %, {row['10%']:6.1%} to 10 %")
    return 0


if __name__ == "__main__":
    sys.exit(main())
