"""``gpuready.launch()`` on a real GPU: what one GPU allows. Run it there: python benchmarks/launch_cuda.py --python VENV --out FILE

Each case is real processes with torchrun's variables. Sound ones must train; two ranks on one GPU must be refused, with both
named, before NCCL is touched.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

SRC = Path(__file__).resolve().parent.parent / "src"
TRAIN = """
import gpuready
with gpuready.launch() as world:
    import torch
    model = torch.nn.Linear(64, 64).to(world.device)
    model = torch.nn.parallel.DistributedDataParallel(model)
    best = torch.optim.SGD(model.parameters(), 0.1)
    x = torch.randn(32, 64, device=world.device)
    losses = []
    for _ in range(5):
        loss = (model(x) - x).square().mean(); best.zero_grad(); loss.backward(); best.step(); losses.append(loss.item())
    print("RESULT", world.rank, world.device, world.backend, [round(v, 6) for v in losses])
"""
AFTER = "import torch; torch.zeros(1, device='cuda'); import gpuready; gpuready.launch()"
TWICE = "import gpuready; gpuready.launch(); gpuready.launch()"


def port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def started(python: str, script: str, rank: int, world: int, local: int, at: int, more: dict[str, str]):
    env = {**os.environ, "PYTHONPATH": str(SRC), "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(local)}
    env |= {"LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(at)}
    env |= {"GPUREADY_START_WINDOW": "20"} | more
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([python, "-c", script], env=env, **pipes)


def case(name: str, python: str, script: str, locals_: list[int], more: dict[str, str] | None = None) -> dict:
    began, at = time.perf_counter(), port()
    ranks = [started(python, script, r, len(locals_), local, at, more or {}) for r, local in enumerate(locals_)]
    outs = [one.communicate(timeout=120)[0] for one in ranks]
    last = [[line for line in out.splitlines() if line.strip()][-1:] for out in outs]
    said = [line[0] if line else "" for line in last]
    touched = any("NCCL INFO" in out for out in outs)
    return {
        "case": name, "codes": [one.returncode for one in ranks], "says": said, "nccl touched": touched,
        "seconds": round(time.perf_counter() - began, 2),
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--python", default=sys.executable, help="a Python with torch for CUDA")
    parser.add_argument("--out", metavar="FILE")
    args = parser.parse_args()
    speak = {"NCCL_DEBUG": "INFO"}
    rows = [
        case("nccl, a world of one", args.python, TRAIN, [0]),
        case("the same once more: the same losses", args.python, TRAIN, [0]),
        case("two ranks, both local rank 0 of one GPU", args.python, TRAIN, [0, 0], speak),
        case("two ranks, local ranks 0 and 1, one GPU", args.python, TRAIN, [0, 1], speak),
        case("CUDA_VISIBLE_DEVICES is empty", args.python, TRAIN, [0], {"CUDA_VISIBLE_DEVICES": ""}),
        case("CUDA_VISIBLE_DEVICES names no GPU", args.python, TRAIN, [0], {"CUDA_VISIBLE_DEVICES": "7"}),
        case("a CUDA context is there already", args.python, AFTER, [0]),
        case("called twice", args.python, TWICE, [0]),
    ]
    name = subprocess.run(
        ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True
    )
    result = {
        "date": time.strftime("%Y-%m-%d"), "hardware": name.stdout.strip(),
        "command": "python benchmarks/launch_cuda.py --python VENV --out FILE", "rows": rows,
    }  # fmt: skip
    print(json.dumps(result, indent=2))
    if args.out:
        Path(args.out).write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
