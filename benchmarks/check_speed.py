"""How fast is `gpuready check`, beside the tools people use today? One table from one run.

    python benchmarks/check_speed.py [--rivals VENV] [--rounds N] [-o FILE.json]

Every command is run in turn, round after round, so that a slow moment of the machine hits all of them alike;
the table has medians and the ratio to the start of Python. Without --rivals, a throw-away environment with
torch 2.13.0, accelerate, transformers, env-doctor and cuda-doctor is made (a few minutes), unless this
interpreter has them.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

RIVALS = {
    "collect_env": ["python", "-m", "torch.utils.collect_env"],
    "accelerate env": ["accelerate", "env"],
    "transformers env": ["transformers", "env"],
    "env-doctor check": ["env-doctor", "check"],
    "cuda-doctor diagnose": ["cuda-doctor", "diagnose"],
}
STARTER = """
import os, sys
null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
child = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ, file_actions=null)
with open(sys.argv[1], "w") as told: told.write(str(os.wait4(child, 0)[2].ru_maxrss * 1024))
"""
SLOW = 1.0
"""Seconds beyond which a command is run in only a third of the rounds."""


def rival_environment(given: str | None) -> Path:
    if given:
        return Path(given)
    if shutil.which("accelerate", path=str(Path(sys.executable).parent)):
        return Path(sys.prefix)
    home = Path(tempfile.mkdtemp(prefix="gpuready-rivals-"))
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    pip = [home / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    subprocess.run([*pip, "torch==2.13.0"], check=True)
    subprocess.run([*pip, "accelerate", "transformers", "env-doctor", "cuda-doctor"], check=True)
    return home


def commands(rivals: Path) -> dict[str, list[str]]:
    gpuready = str(Path(sys.executable).with_name("gpuready"))
    if not os.access(gpuready, os.X_OK):
        gpuready_command = [sys.executable, "-c", "from gpuready.cli import main; main()"]
    else:
        gpuready_command = [gpuready]
    found = {"python -c pass": [sys.executable, "-c", "pass"]}
    if smi := shutil.which("nvidia-smi"):
        found["nvidia-smi"] = [smi]
    found["gpuready check transformers"] = [*gpuready_command, "check", "transformers", "--python", str(rivals)]
    for name, (program, *rest) in RIVALS.items():
        path = rivals / "bin" / program
        where = str(path) if path.exists() else shutil.which(program)
        if where:
            found[name] = [where, *rest]
    return found


def once(argv: list[str]) -> tuple[float, int]:
    """Wall seconds, exit code."""
    started = time.perf_counter()
    child = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    code = child.wait()
    return time.perf_counter() - started, code


def peak(argv: list[str], cwd: Path | None = None, env: dict[str, str] | None = None) -> int:
    """Peak memory in bytes of a command and of what it waited for, in a run that is not timed.

    A new process counts what its parent held until then: this script would be the least that anything takes. So a Python that has
    imported nothing starts it, which is smaller than any other Python.
    """
    with tempfile.NamedTemporaryFile("r") as told:
        subprocess.run([sys.executable, "-I", "-S", "-c", STARTER, told.name, *argv], cwd=cwd, env=env, check=True)
        return int(told.read())


def measure(table: dict[str, list[str]], rounds: int) -> dict[str, dict[str, float]]:
    seconds: dict[str, list[float]] = {name: [] for name in table}
    exits: dict[str, int] = {}
    for turn in range(rounds + 1):
        for name, argv in table.items():
            if turn > 1 and turn % 3 and seconds[name] and seconds[name][-1] > SLOW:
                continue
            wall, code = once(argv)
            exits[name] = code
            if turn:  # the first round warms the caches
                seconds[name].append(wall)
    return {
        name: {
            "median_s": statistics.median(runs),
            "min_s": min(runs),
            "max_s": max(runs),
            "runs": len(runs),
            "peak_bytes": peak(table[name]),
            "exit": exits[name],
        }
        for name, runs in seconds.items()
    }


def show(results: dict[str, dict[str, float]]) -> str:
    bare = results["python -c pass"]["median_s"]
    ours = results["gpuready check transformers"]["median_s"]
    lines = [f"{'command':28} {'median':>9} {'x python':>9} {'x gpuready':>9} {'peak MB':>8} {'runs':>5} {'exit':>5}"]
    for name, row in results.items():
        wall = row["median_s"]
        lines.append(
            f"{name:28} {wall * 1000:7.1f}ms {wall / bare:9.1f} {wall / ours:9.1f} "
            f"{row['peak_bytes'] / 1e6:8.1f} {row['runs']:5} {row['exit']:5}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rivals", help="an environment that has torch, accelerate, transformers, the doctors")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("-o", "--output")
    args = parser.parse_args()
    results = measure(commands(rival_environment(args.rivals)), args.rounds)
    print(show(results))
    if args.output:
        about = {
            "date": date.today().isoformat(),
            "command": "python benchmarks/check_speed.py " + f"--rounds {args.rounds}",
            "python": platform.python_version(),
            "machine": f"{os.cpu_count()} cores, {platform.machine()}, Linux {platform.release()}",
        }
        Path(args.output).write_text(json.dumps({"about": about, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
