"""`gpuready run` against torchrun: from the start of the command to the first all-reduce, side by side.

    python benchmarks/run_speed.py --python VENV [--ranks 1,2,4,8] [--pairs 10] [--megabytes 50] [--out FILE]

The two take turns, and who begins changes from pair to pair, so that what else the machine does hits both alike. The figure is the median
of the ratios of the pairs, with a bootstrap interval of 95 %. ``cpu_`` is processor time of the whole run with all of its processes, which other work on
the machine hardly changes. With --megabytes: instead, seconds for so much stderr of one rank to pass, beside ``torchrun --tee 3``; those of a run that writes nothing
are taken off.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

SRC = Path(__file__).parent.parent / "src"
SCRIPT = """
import sys, time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
value = torch.ones(1)
dist.all_reduce(value)
if dist.get_rank() == 0:
    open(sys.argv[1], "w").write(repr(time.time()))
assert value.item() == dist.get_world_size()
dist.destroy_process_group()
"""

FLOOD = """
import os, sys
line = sys.argv[1].encode("latin-1").decode("unicode_escape").encode("latin-1")
for _ in range(int(sys.argv[2]) * 1000000 // (16 * len(line))):
    os.write(2, 16 * line)
"""
FLOODS = {
    "progress": "2026-11-19 12:00:00 INFO step 120 loss 2.3456 lr 0.0001 tokens/s 12345\\n",
    "warnings": "/usr/lib/python3/site-packages/loader.py:123: UserWarning: the tokenizer key is not used, see https://example.org/a\\n",
    "junk": "\\x1b[31mdump \\xff\\xfe\\x00 " + "0.123456 " * 100 + "\\x1b[2J\\r\\n",
}


def command(kind: str, python: str, ranks: int, script: str, reported: str) -> list[str]:
    if kind == "torchrun":
        return [python, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", script, reported]
    main = "from gpuready.cli import main; main()"
    return [sys.executable, "-c", main, "run", "--python", python, "--nproc", str(ranks), "-q", "--", script, reported]


def children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def seconds(kind: str, python: str, ranks: int, folder: Path) -> tuple[float, float]:
    """From the start of the command to the first all-reduce of rank 0, and the processor time of the whole run."""
    script, reported = folder / "first.py", folder / "told"
    script.write_text(SCRIPT)
    reported.unlink(missing_ok=True)
    env = (
        {**os.environ, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1"}
        if kind == "gpuready"
        else {**os.environ, "OMP_NUM_THREADS": "1"}
    )
    began, used = time.time(), children_seconds()
    subprocess.run(
        command(kind, python, ranks, str(script), str(reported)), check=True, capture_output=True, cwd=folder, env=env
    )
    return float(reported.read_text()) - began, children_seconds() - used


def flood_seconds(kind: str, python: str, line: str, megabytes: int, folder: Path) -> tuple[float, float]:
    """Seconds of the whole run and its processor time, with so many megabytes of stderr."""
    script = folder / "flood.py"
    script.write_text(FLOOD)
    words = [word for word in command(kind, python, 1, str(script), line) if word != "-q"]
    at = words.index(str(script)) - (kind == "gpuready")
    words[at:at] = ["--tee", "3"] if kind == "torchrun" else ["--log-dir", str(folder / "logs")]
    env = {**os.environ, "PYTHONPATH": str(SRC)} if kind == "gpuready" else None
    began, used = time.monotonic(), children_seconds()
    passed = subprocess.run([*words, str(megabytes)], check=True, capture_output=True, cwd=folder, env=env)
    assert len(passed.stdout + passed.stderr) >= megabytes * 990_000
    return time.monotonic() - began, children_seconds() - used


def measure_floods(python: str, megabytes: int, pairs: int, folder: Path) -> None:
    for name, line in FLOODS.items():
        taken: dict[str, list[tuple[float, float]]] = {"gpuready": [], "torchrun": []}
        for kind in ("torchrun", "gpuready") * pairs:
            base = flood_seconds(kind, python, line, 0, folder)
            whole = flood_seconds(kind, python, line, megabytes, folder)
            taken[kind].append((whole[0] - base[0], whole[1] - base[1]))
        row: dict[str, object] = {"lines": name, "megabytes": megabytes}
        for at, what in enumerate(("seconds", "cpu")):
            medians = {kind: statistics.median(one[at] for one in values) for kind, values in taken.items()}
            row |= {f"{what}_{kind}": round(value, 2) for kind, value in medians.items()}
            row[f"{what}_ratio"] = round(medians["gpuready"] / medians["torchrun"], 2)
        print(row, flush=True)


def interval(values: list[float]) -> tuple[float, float]:
    draw = random.Random(0)
    medians = sorted(statistics.median(draw.choices(values, k=len(values))) for _ in range(2000))
    return medians[50], medians[1949]


def measure(python: str, ranks: int, pairs: int, folder: Path) -> dict[str, object]:
    taken: dict[str, list[tuple[float, float]]] = {"gpuready": [], "torchrun": []}
    for pair in range(pairs):
        for kind in ("gpuready", "torchrun") if pair % 2 else ("torchrun", "gpuready"):
            taken[kind].append(seconds(kind, python, ranks, folder))
    ratios, cpu_ratios = (
        [a[at] / b[at] for a, b in zip(taken["gpuready"], taken["torchrun"], strict=True)] for at in (0, 1)
    )
    low, high = interval(ratios)
    medians = {kind: round(statistics.median(one[0] for one in values), 3) for kind, values in taken.items()}
    cpu = {f"cpu_{kind}": round(statistics.median(one[1] for one in values), 3) for kind, values in taken.items()}
    row = {
        "ranks": ranks,
        "pairs": pairs,
        **medians,
        "ratio": round(statistics.median(ratios), 3),
        "interval": [round(low, 3), round(high, 3)],
        **cpu,
        "cpu_ratio": round(statistics.median(cpu_ratios), 3),
    }
    print(row, flush=True)
    return row


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--python", required=True)
    asked.add_argument("--ranks", default="1,2,4,8")
    asked.add_argument("--pairs", type=int, default=10)
    asked.add_argument("--megabytes", type=int, default=0)
    asked.add_argument("--out")
    args = asked.parse_args()
    path = Path(args.python)
    python = str(path / "bin" / "python") if path.is_dir() else str(path)
    version = [python, "-c", "import torch; print(torch.__version__)"]
    document = {
        "what": "seconds from the start of the command to the first all-reduce (gloo); ratio gpuready / torchrun of interleaved pairs",
        "date": str(date.today()),
        "hardware": f"{os.cpu_count()} cores, {platform.machine()}",
        "torch": subprocess.run(version, capture_output=True, text=True, check=True).stdout.strip(),
        "command": f"python benchmarks/run_speed.py --ranks {args.ranks} --pairs {args.pairs}",
    }
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        if args.megabytes:
            measure_floods(python, args.megabytes, args.pairs, Path(folder))
            return
        seconds("gpuready", python, 1, Path(folder))  # warm the caches of files
        for ranks in args.ranks.split(","):
            rows.append(measure(python, int(ranks), args.pairs, Path(folder)))
            if args.out:
                load = [round(value, 1) for value in os.getloadavg()]
                Path(args.out).write_text(json.dumps({**document, "load": load, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
