"""Does CUDA work in ranks that are forked from a process that has imported torch? Run it on a machine with an NVIDIA GPU.

    python benchmarks/fork_cuda.py [--python VENV] [--out FILE]

One rank for each GPU by the forking start of `gpuready run --fork` (two ranks where there is one GPU: both on device 0, gloo between them and
CUDA in each; and NCCL in a world of one), then the same script by torchrun: both must give the same sums, and the parent must not
have touched the GPU. It also times both starts.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

SRC = Path(__file__).parent.parent / "src"
SCRIPT = """
import json, os, sys
import torch, torch.distributed as dist
assert not torch.cuda.is_initialized(), "the parent had touched the GPU"
local, gpus = int(os.environ["LOCAL_RANK"]), torch.cuda.device_count()
torch.cuda.set_device(local % gpus)
world = int(os.environ["WORLD_SIZE"])
backend = "nccl" if world <= gpus else "gloo"
dist.init_process_group(backend)
torch.manual_seed(7)
a = torch.randn(512, 512, device="cuda")
product = (a @ a).double().sum()
total = torch.tensor([float(dist.get_rank() + 1)], device="cuda" if backend == "nccl" else "cpu")
dist.all_reduce(total)
with torch.cuda.stream(torch.cuda.Stream()):
    graph_sum = (a * 2).sum().item()
torch.cuda.synchronize()
event = torch.cuda.Event(); event.record(); event.synchronize()
pinned = torch.ones(1 << 20).pin_memory().to("cuda", non_blocking=True).sum().item()
print("TOLD " + json.dumps({"rank": dist.get_rank(), "backend": backend, "device": torch.cuda.get_device_name(), "product": float(product),
      "total": float(total), "graph": graph_sum, "pinned": pinned}), flush=True)
dist.destroy_process_group()
"""


def reported(words: list[str], folder: Path) -> tuple[list[dict[str, object]], float]:
    began = time.monotonic()
    done = subprocess.run(
        words, capture_output=True, text=True, cwd=folder, env={**os.environ, "PYTHONPATH": str(SRC)}, timeout=300
    )
    if done.returncode:
        raise SystemExit(f"{words}: exit {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    rows = [json.loads(line.partition("TOLD ")[2]) for line in done.stdout.splitlines() if "TOLD " in line]
    return sorted(rows, key=lambda row: int(str(row["rank"]))), time.monotonic() - began


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--python", default=sys.executable)
    asked.add_argument("--out")
    args = asked.parse_args()
    path = Path(args.python)
    python = str(path / "bin" / "python") if path.is_dir() else str(path)
    count = "import torch; print(torch.cuda.device_count())"
    gpus = int(subprocess.run([python, "-c", count], capture_output=True, text=True, check=True).stdout)
    if not gpus:
        raise SystemExit("no GPU is visible to torch here: nothing can be shown")
    rows = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "cuda.py").write_text(SCRIPT)
        for ranks in sorted({2, gpus} if gpus > 1 else {1, 2}):
            fork = [] if ranks == 1 else ["--fork"]
            ours, mine = reported([sys.executable, "-c", "from gpuready.cli import main; main()", "run", "--python", python, "--nproc", str(ranks),
                               "--no-preflight", *fork, "--", "cuda.py"], folder)  # fmt: skip
            theirs, other = reported(
                [python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", "cuda.py"], folder
            )
            assert len(ours) == ranks and ours == theirs, f"not the same:\n{ours}\n{theirs}"
            rows.append(
                {
                    "ranks": ranks,
                    "forked": bool(fork),
                    "gpuready_s": round(mine, 2),
                    "torchrun_s": round(other, 2),
                    "told": ours,
                }
            )
            print(rows[-1], flush=True)
    document = {"what": "CUDA in ranks that gpuready run forks; the same results as by torchrun", "date": str(date.today()),
                "gpus": gpus, "command": "python benchmarks/fork_cuda.py", "rows": rows}  # fmt: skip
    if args.out:
        Path(args.out).write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
