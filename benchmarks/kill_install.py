"""SIGKILL at random moments of an install: what is left by gpuready, and what by plain uv? One table from one run.

    python benchmarks/kill_install.py [--kills N] [--folder DIR] [-o FILE.json]

Both install the same two stacks of small wheels in turn, one over the other, from a local folder and a warm cache.
Each run is killed after a time drawn evenly from zero to the length of a whole run. Then every file is compared with
the RECORD of its distribution, and the versions with each other: an environment is broken when they do not fit
together. It stays broken when the same command, run again and ending with 0, does not mend it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from tests.apply.wheels import Bench, lock, wheel  # noqa: E402

from gpuready.apply.audit import DistributionInventory, describe_generation  # noqa: E402

PACKAGES, FILES = ("alpha", "beta", "gamma", "delta"), 1000


def stacks(bench: Bench) -> None:
    """Two versions of four packages of many files each; the first is the framework."""
    for version in ("1.0", "2.0"):
        made = []
        for name in PACKAGES:
            files = {f"{name}/part{i}.py": f"X = {version!r}, {i}\n" * 10 for i in range(FILES)}
            files[f"{name}/__init__.py"] = f"VERSION = {version!r}\n"
            made.append(wheel(bench.wheels, name, version, files))
        bench.locks[version] = lock(bench.folder / f"{version}.lock", *made)


def found(root: Path) -> str:
    """The version that a whole environment is of; empty: nothing stands there; broken: half."""
    if not (root / "bin" / "python").exists():
        return ""
    packages = DistributionInventory(str(root)).packages
    versions = {packages.get(name, "missing") for name in PACKAGES}
    faults = [fault for fault in describe_generation(str(root))[1] if fault.kind != "overlap"]
    return versions.pop() if len(versions) == 1 and not faults else "broken"


class Gpuready:
    name = "gpuready install"

    def __init__(self, bench: Bench):
        self.bench, self.root = bench, bench.home

    def argv(self, version: str) -> list[str]:
        code = "from gpuready.cli import main; main()"
        return [sys.executable, "-c", code, *self.bench.argv(version, "--keep", "1")]

    def reset(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


class Uv:
    name = "uv pip install"

    def __init__(self, bench: Bench):
        from uv import find_uv_bin

        self.bench, self.uv, self.root = bench, find_uv_bin(), bench.folder / "plain"

    def argv(self, version: str) -> list[str]:
        words = [self.uv, "pip", "install", "--python", str(self.root), "--no-deps", "--require-hashes"]
        return [*words, "--find-links", str(self.bench.wheels), "-r", str(self.bench.locks[version])]

    def reset(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)
        subprocess.run([self.uv, "venv", "-q", "--python", sys.executable, self.root], check=True, env=self.bench.env)


def whole(side: Gpuready | Uv, version: str) -> float:
    began = time.perf_counter()
    done = subprocess.run(side.argv(version), env=side.bench.env, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return time.perf_counter() - began


def killed(side: Gpuready | Uv, version: str, after: float) -> bool:
    """Run, and kill after a time; whether it was still running then."""
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(side.argv(version), env=side.bench.env, **quiet)  # type: ignore[call-overload]
    time.sleep(after)
    running = process.poll() is None
    process.kill()
    process.wait()
    return running


def measure(side: Gpuready | Uv, kills: int, choose: random.Random) -> dict[str, object]:
    side.reset()
    whole(side, "1.0")
    usual = statistics.median([whole(side, version) for version in ("2.0", "1.0", "2.0")])
    tally = {"kills": 0, "broken": 0, "old": 0, "new": 0, "still broken after a second run": 0}
    stands = "2.0"
    while tally["kills"] < kills:
        wanted = "1.0" if stands == "2.0" else "2.0"
        if not killed(side, wanted, choose.uniform(0, usual)):
            stands = found(side.root)  # it was done before the kill: no kill to count
            continue
        tally["kills"] += 1
        now = found(side.root)
        tally["old" if now == stands else "new" if now == wanted else "broken"] += 1
        again = subprocess.run(side.argv(wanted), env=side.bench.env, capture_output=True, text=True)
        after = found(side.root)
        if after != wanted and again.returncode == 0:
            tally["still broken after a second run"] += 1
        if after not in ("1.0", "2.0"):
            side.reset()
            whole(side, wanted)
            after = wanted
        stands = after
    return {"command": side.name, "seconds of a whole run": round(usual, 3)} | tally


def rollbacks(bench: Bench, rounds: int = 20) -> dict[str, object]:
    """How long a rollback takes: the switch itself, and the whole command with the start of Python."""
    switch, command, start = [], [], []
    for version in ("1.0", "2.0"):
        subprocess.run(
            [*Gpuready(bench).argv(version)[:-2], "--keep", "3"], env=bench.env, check=True, capture_output=True
        )
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        start.append(time.perf_counter() - began)
        began = time.perf_counter()
        ran = bench.run("install", "--rollback", "-e", str(bench.home), "--json")
        command.append(time.perf_counter() - began)
        switch.append(json.loads(ran.out)["seconds"])
        os.symlink(f"installs/{json.loads(ran.out)['previous']}", bench.home / "next")
        os.rename(bench.home / "next", bench.home / "current")
    return {
        "rounds": rounds,
        "switch, median s": round(statistics.median(switch), 4),
        "command, median s": round(statistics.median(command), 4),
        "python -c pass, median s": round(statistics.median(start), 4),
    }


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ask.add_argument("--kills", type=int, default=200)
    ask.add_argument("--folder")
    ask.add_argument("-o", "--output")
    args = ask.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="gpuready-kill-", dir=args.folder))
    try:
        bench = Bench(folder)
        stacks(bench)
        rows = [measure(side, args.kills, random.Random(20261115)) for side in (Gpuready(bench), Uv(bench))]
        back = rollbacks(bench)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    for row in rows:
        print("  ".join(f"{name}: {value}" for name, value in row.items()))
    print(f"rollback: {back}")
    if args.output:
        here = {
            "date": str(date.today()),
            "hardware": f"{os.cpu_count()} cores, {platform.machine()}, Linux {platform.release().split('-')[0]}",
            "command": f"python benchmarks/kill_install.py --kills {args.kills} -o FILE",
            "uv": subprocess.run([Uv(bench).uv, "--version"], capture_output=True, text=True).stdout.split()[1],
            "packages": len(PACKAGES),
            "files": len(PACKAGES) * FILES,
        }
        Path(args.output).write_text(json.dumps(here | {"results": rows, "rollback": back}, indent=2) + "\n")


if __name__ == "__main__":
    main()
