"""What one import costs the start of Python: why `gpuready check` does without most of them.

    python benchmarks/import_cost.py [-o FILE.json]

Whole processes, in turn, round after round; medians.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

IMPORTS = [
    "", "functools", "re", "argparse", "typing", "json", "subprocess", "dataclasses", "packaging.version",
    "packaging.specifiers", "gpuready.model", "gpuready.system", "gpuready.workflow",
]  # fmt: skip


def once(module: str) -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", f"import {module}" if module else "pass"], check=True)
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("-o", "--output")
    args = parser.parse_args()
    seconds: dict[str, list[float]] = {name: [] for name in IMPORTS}
    for _ in range(args.rounds):
        for name in IMPORTS:
            seconds[name].append(once(name))
    medians = {name or "nothing": round(statistics.median(runs) * 1000, 1) for name, runs in seconds.items()}
    for name, milliseconds in medians.items():
        print(f"{milliseconds:7.1f} ms  {name}")
    if args.output:
        about = {
            "date": date.today().isoformat(),
            "command": f"python benchmarks/import_cost.py --rounds {args.rounds}",
            "python": platform.python_version(),
            "machine": f"{os.cpu_count()} cores, {platform.machine()}, Linux {platform.release()}",
        }
        Path(args.output).write_text(json.dumps({"about": about, "milliseconds": medians}, indent=1) + "\n")


if __name__ == "__main__":
    main()
