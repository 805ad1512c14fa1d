"""What watching costs a running job: processor time of gpuready beside that of the ranks, while they compute.

    python benchmarks/watch_overhead.py [--ranks 1,2,8] [--seconds 30] [-o FILE]

Ranks that only compute run under `gpuready run`. Processor time is read from /proc at the begin and at the end of the interval, so that other
work on the machine does not count: of the side process of each rank, of gpuready itself, and of the threads that are not the rank's own.
``share`` is all of it for one rank, as a part of the time that passed: by so much a step becomes longer where no processor is idle.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import signal
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

SRC = Path(__file__).parent.parent / "src"
SCRIPT = """
import os
print("pid", os.getpid(), os.getppid(), flush=True)
def step():
    return sum(number * number for number in range(10_000))
while True:
    step()
"""
TICK = os.sysconf("SC_CLK_TCK")


def processor_seconds(path: Path) -> float:
    fields = path.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def read_all(ranks: list[int], watchers: set[int]) -> tuple[float, float]:
    """Processor seconds so far: of the ranks' own threads, and of all that watches them."""
    own = sum(processor_seconds(Path(f"/proc/{pid}/task/{pid}/stat")) for pid in ranks)
    whole = sum(processor_seconds(Path(f"/proc/{pid}/stat")) for pid in ranks)
    return own, whole - own + sum(processor_seconds(Path(f"/proc/{pid}/stat")) for pid in watchers)


def find_pids(folder: Path, count: int) -> tuple[list[int], set[int]]:
    """The ranks and their side processes, as the ranks tell them."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        texts = [path.read_text() for path in folder.glob("logs/rank-*.log")]
        result = [found for text in texts if (found := re.search(r"pid (\d+) (\d+)", text))]
        if len(result) == count:
            return [int(one[1]) for one in result], {int(one[2]) for one in result}
        time.sleep(0.2)
    raise SystemExit("the ranks did not start")


def measure(count: int, seconds: float) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "train.py").write_text(SCRIPT)
        words = [sys.executable, "-m", "gpuready", "run", "--nproc", str(count), "--no-preflight", "--log-dir", "logs"]
        env = {**os.environ, "PYTHONPATH": str(SRC)}
        process = subprocess.Popen([*words, "--", "train.py"], cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        try:
            ranks, agents = find_pids(folder, count)
            time.sleep(3)
            before, began = read_all(ranks, agents | {process.pid}), time.monotonic()
            time.sleep(seconds)
            after, taken = read_all(ranks, agents | {process.pid}), time.monotonic() - began
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(60)
    own, watching = after[0] - before[0], after[1] - before[1]
    row = {"ranks": count, "seconds": round(taken, 1), "ranks_cpu_s": round(own, 2), "watch_cpu_s": round(watching, 3)}
    row["share"] = round(watching / taken / count, 5)
    print(row, flush=True)
    return row


def main() -> None:
    asked = argparse.ArgumentParser()
    asked.add_argument("--ranks", default="1,2,8")
    asked.add_argument("--seconds", type=float, default=30.0)
    asked.add_argument("-o", "--out")
    args = asked.parse_args()
    load = [round(value, 1) for value in os.getloadavg()]
    document = {
        "what": "processor time of gpuready run's watching beside that of the ranks, which compute all the time",
        "date": str(date.today()),
        "hardware": f"{os.cpu_count()} cores, {platform.machine()}",
        "command": f"python benchmarks/watch_overhead.py --ranks {args.ranks} --seconds {args.seconds:g}",
        "load": load,
        "rows": [measure(int(ranks), args.seconds) for ranks in args.ranks.split(",")],
    }
    if args.out:
        Path(args.out).write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
