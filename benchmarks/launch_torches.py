"""Whether ``gpuready.launch()`` and ``gpuready run`` start on each release of torch, with real ranks on the CPU.

    python benchmarks/launch_torches.py --envs FOLDER [--torch 2.2.2 2.4.1 …] [-o FILE]

FOLDER has one environment for each release, ``FOLDER/t2.5.1``; one that is missing is made there by uv, gigabytes each.
Each row: two ranks by their variables, two by ``gpuready run``, two under torchrun, and a second start in one script.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import socket
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RELEASES = ("2.2.2", "2.4.1", "2.5.1", "2.7.1", "2.8.0")
SCRIPT = """
import gpuready, torch, torch.distributed as dist
world = gpuready.launch()
x = torch.ones(1)
dist.all_reduce(x)
assert x.item() == world.world_size == 2
print("summed", torch.__version__, flush=True)
"""
TWICE = "import gpuready, torch.distributed as dist\ngpuready.launch()\ndist.init_process_group('gloo')\n"


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return made.getsockname()[1]


def make_environment(folder: Path, release: str) -> Path:
    """Return the environment with a release of torch, made where it is missing."""
    python = folder / f"t{release}" / "bin" / "python"
    if not python.exists():
        uv = [sys.executable, "-m", "uv"]
        subprocess.run([*uv, "venv", "-q", "--python", "3.11", python.parent.parent], check=True)
        subprocess.run([*uv, "pip", "install", "-q", "--python", python, f"torch=={release}", "numpy<2"], check=True)
    return python


def run_ranks(commands: list[list[str]], variables: list[dict[str, str]]) -> dict[str, object]:
    shared = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    begun = time.monotonic()
    running = [
        subprocess.Popen(one, env=shared | own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for one, own in zip(commands, variables, strict=True)
    ]
    result = [one.communicate(timeout=240)[0] for one in running]
    summed = sum(text.count("summed") for text in result)
    lines = [line for text in result for line in text.splitlines() if "Error" in line or "LaunchRefused" in line]
    good = summed == 2 and not any(one.returncode for one in running)
    return {"ok": good, "seconds": round(time.monotonic() - begun, 1)} | ({} if good else {"says": lines[-1:]})


def by_variables(python: str, script: str) -> dict[str, object]:
    shared = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    own = [shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]
    return run_ranks([[python, script]] * 2, own)


def by_run(python: str, script: str) -> dict[str, object]:
    words = [sys.executable, "-m", "gpuready", "run", "--python", python, "--nproc", "2", "--log-dir"]
    with tempfile.TemporaryDirectory() as logs:
        return run_ranks([[*words, logs, "--", script]], [{}])


def by_torchrun(python: str, script: str) -> dict[str, object]:
    words = [python, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port())]
    return run_ranks([[*words, script]], [{}])


def twice(python: str, script: str) -> str:
    """What a second start in the same script is told."""
    Path(script).write_text(TWICE)
    ran = subprocess.run(
        [python, script], env=os.environ | {"PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True
    )
    return ran.stderr.strip().splitlines()[-1].partition("LaunchRefused: ")[2]


def try_release(folder: Path, release: str) -> dict[str, object]:
    python = str(make_environment(folder, release))
    with tempfile.TemporaryDirectory() as scratch:
        script = f"{scratch}/train.py"
        Path(script).write_text(SCRIPT)
        row: dict[str, object] = {"torch": release}
        row |= {"variables": by_variables(python, script), "run": by_run(python, script)}
        return row | {"torchrun": by_torchrun(python, script), "second start": twice(python, script)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--envs", type=Path, required=True)
    parser.add_argument("--torch", nargs="+", default=RELEASES)
    parser.add_argument("-o", dest="out")
    asked = parser.parse_args()
    rows = [try_release(asked.envs, release) for release in asked.torch]
    found = {"date": str(date.today()), "machine": platform.machine(), "python": platform.python_version()}
    text = json.dumps(found | {"rows": rows}, indent=1)
    if asked.out:
        Path(asked.out).write_text(text + "\n")
    print(text)
    raise SystemExit(any(not row[way]["ok"] for row in rows for way in ("variables", "run", "torchrun")))


if __name__ == "__main__":
    main()
