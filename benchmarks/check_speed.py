"""How fast is `gpuready check`, beside the tools people use today? One table from one run.

    python benchmarks/check_speed.py [--rivals VENV] [--environment VENV] [--rounds N] [--only NAME ...] [-o FILE.json]

Every command is run in turn, round after round, so that a slow moment of the machine hits all of them alike; the table has
medians and the ratio to the start of Python, of time and of processor time (children included). Without --rivals, a
throw-away environment with torch 2.13.0 for the CPU, accelerate, transformers and the doctors that are asked for is installed,
unless this interpreter has them. --environment names a large environment, to be checked too. --only chooses rivals: collect_env
alone takes a third of the time.

gpuready keeps what it has read of an environment until one of its files changes: "first look" is a run without that.
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
from typing import NamedTuple

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
FIRST = ", first look"


class Run(NamedTuple):
    """One command: its words, where it runs, and the variables that differ."""

    argv: list[str]
    cwd: str | None = None
    variables: dict[str, str] = {}  # noqa: RUF012


def rival_environment(requested: str | None, only: list[str]) -> Path:
    if requested:
        return Path(requested)
    if shutil.which("accelerate", path=str(Path(sys.executable).parent)):
        return Path(sys.prefix)
    home = Path(tempfile.mkdtemp(prefix="gpuready-rivals-")) / "env"
    words = ["install", "transformers", "--torch", "2.13.0+cpu", "-e", home]
    subprocess.run([sys.executable, "-m", "gpuready", *words], check=True, stdout=subprocess.DEVNULL)
    if doctors := [name.partition(" ")[0] for name in only or RIVALS if "doctor" in name]:
        uv = [sys.executable, "-m", "uv", "pip", "install", "-q", "--python", home / "bin/python"]
        subprocess.run([*uv, *doctors], check=True)
    return home


def count_packages(environment: Path) -> int:
    return len(list(environment.glob("lib/python3*/site-packages/*.dist-info")))


def commands(rivals: Path, environment: Path | None, only: list[str], scratch: Path) -> dict[str, Run]:
    gpuready = str(Path(sys.executable).with_name("gpuready"))
    ours = (
        [gpuready] if os.access(gpuready, os.X_OK) else [sys.executable, "-c", "from gpuready.cli import main; main()"]
    )
    found = {"python -c pass": Run([sys.executable, "-c", "pass"])}
    if smi := shutil.which("nvidia-smi"):
        found["nvidia-smi"] = Run([smi])
    empty = str(scratch / "empty")
    nowhere = {"PATH": empty, "VIRTUAL_ENV": "", "CONDA_PREFIX": ""}
    found["gpuready check transformers, no environment"] = Run([*ours, "check", "transformers"], empty, nowhere)
    checked = {"gpuready check transformers": [*ours, "check", "transformers", "--python", str(rivals)]}
    if environment:
        checked[f"gpuready check, {count_packages(environment)} packages"] = [
            *ours,
            "check",
            "--python",
            str(environment),
        ]
    for name, argv in checked.items():
        found[name] = Run(argv, empty, {"XDG_CACHE_HOME": str(scratch / "cache")})
        found[name + FIRST] = Run(argv, empty, {"XDG_CACHE_HOME": "/dev/null"})
    for name, (program, *rest) in RIVALS.items():
        path = rivals / "bin" / program
        where = str(path) if path.exists() else shutil.which(program)
        if where and (not only or name in only):
            found[name] = Run([where, *rest])
    return found


def once(run: Run) -> tuple[float, float, int]:
    """Wall seconds, processor seconds of the command and all that it waited for, exit code."""
    null = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    before = os.getcwd()
    os.chdir(run.cwd or before)
    started = time.perf_counter()
    child = os.posix_spawn(run.argv[0], run.argv, {**os.environ, **run.variables}, file_actions=null)
    _, status, used = os.wait4(child, 0)
    wall = time.perf_counter() - started
    os.chdir(before)
    return wall, used.ru_utime + used.ru_stime, os.waitstatus_to_exitcode(status)


def peak(argv: list[str], cwd: Path | None = None, env: dict[str, str] | None = None) -> int:
    """Peak memory in bytes of a command and of what it waited for, in a run that is not timed.

    A new process counts what its parent held until then: this script would be the least that anything takes. So a Python that has
    imported nothing starts it, which is smaller than any other Python.
    """
    with tempfile.NamedTemporaryFile("r") as reported:
        subprocess.run([sys.executable, "-I", "-S", "-c", STARTER, reported.name, *argv], cwd=cwd, env=env, check=True)
        return int(reported.read())


def measure(table: dict[str, Run], rounds: int) -> dict[str, dict[str, float]]:
    walls: dict[str, list[float]] = {name: [] for name in table}
    processors: dict[str, list[float]] = {name: [] for name in table}
    exits: dict[str, int] = {}
    for turn in range(rounds + 1):
        for name, run in table.items():
            if turn > 1 and turn % 3 and walls[name] and walls[name][-1] > SLOW:
                continue
            wall, processor, exits[name] = once(run)
            if turn:  # the first round warms the caches
                walls[name].append(wall)
                processors[name].append(processor)
    return {
        name: {
            "median_s": statistics.median(runs),
            "min_s": min(runs),
            "max_s": max(runs),
            "processor_median_s": statistics.median(processors[name]),
            "processor_min_s": min(processors[name]),
            "runs": len(runs),
            "peak_bytes": peak(table[name].argv, table[name].cwd, {**os.environ, **table[name].variables}),
            "exit": exits[name],
        }
        for name, runs in walls.items()
    }


def show(results: dict[str, dict[str, float]]) -> str:
    bare, ours = results["python -c pass"], results["gpuready check transformers"]
    head = ("median", "x python", "x gpuready", "processor", "x python", "least", "x python", "peak MB", "runs", "exit")
    lines = [f"{'command':46}" + "".join(f"{word:>11}" for word in head)]
    for name, row in results.items():
        times = [row[key] / bare[key] for key in ("median_s", "processor_median_s", "processor_min_s")]
        lines.append(
            f"{name:46}{row['median_s'] * 1000:9.1f}ms{times[0]:11.1f}{row['median_s'] / ours['median_s']:11.1f}"
            f"{row['processor_median_s'] * 1000:9.1f}ms{times[1]:11.1f}{row['processor_min_s'] * 1000:9.1f}ms{times[2]:11.1f}"
            f"{row['peak_bytes'] / 1e6:11.1f}{row['runs']:11}{row['exit']:11}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rivals", help="an environment that has torch, accelerate, transformers, the doctors")
    parser.add_argument("--environment", type=Path, help="a large environment, to be checked too")
    parser.add_argument(
        "--only", nargs="*", default=[], choices=RIVALS, help="rivals to run; all of them where none is named"
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("-o", "--output")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        (Path(scratch) / "empty").mkdir()
        rivals = rival_environment(args.rivals, args.only).absolute()
        environment = args.environment and args.environment.absolute()
        results = measure(commands(rivals, environment, args.only, Path(scratch)), args.rounds)
    print(show(results))
    if args.output:
        about = {
            "date": date.today().isoformat(),
            "command": "python benchmarks/check_speed.py "
            + f"--rounds {args.rounds}"
            + (" --environment VENV" if environment else ""),
            "python": platform.python_version(),
            "machine": f"{os.cpu_count()} cores, {platform.machine()}, Linux {platform.release()}",
            "load_after": round(os.getloadavg()[0], 1),
        }
        Path(args.output).write_text(json.dumps({"about": about, "results": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
