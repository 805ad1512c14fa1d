"""Every reader under coverage-guided fuzzing at once: ``python -m tests.fuzz.all --seconds 580 --folder build/fuzz``.

Each reader is a process with a corpus of its own, which stays in the folder: a second call goes on where the first ended, and
times, inputs and crashes add up. ``FOLDER/fuzz.json`` and ``FOLDER/fuzz.md`` have the table; ``--minimise`` makes of each corpus a
small one that reaches the same (``FOLDER/small``), and ends. Nothing is ever written outside the folder and /dev/shm.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.fuzz.parsers import PARSERS

PATTERNS = {
    "inputs": r"^#(\d+)\b|stat::number_of_executed_units:\s*(\d+)",  # of the last line that tells: it may have been killed
    "edges": r"cov: (\d+)",
    "features": r"ft: (\d+)",
}
ADDS = ("inputs", "seconds", "cpu_seconds")
TRIES = 5
"""How often a process is begun anew that libFuzzer itself has ended: an input took too long, or too much memory."""


class Harness:
    """One reader under way."""

    def __init__(self, name: str, folder: Path, until: float):
        self.name, self.folder, self.until, self.left = name, folder, until, TRIES
        self.row: dict[str, Any] = dict.fromkeys(
            (*ADDS, "edges", "features", "peak_mib", "slowest_s", "ended_early"), 0
        )
        self.log = folder / f"{name}.log"
        self.log.unlink(missing_ok=True)
        self.start()

    def start(self) -> None:
        """Begin, or begin anew for the time that is left."""
        seconds = max(int(self.until - time.monotonic()), 1)
        words = [sys.executable, "-m", "tests.fuzz.run", self.name, f"-max_total_time={seconds}"]
        self.begun = time.monotonic()
        env = os.environ | {"FUZZ_FOLDER": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1"}
        with self.log.open("ab") as out:  # of all its processes: the last one does not cover why the first ended
            self.said = out.tell()
            self.process = subprocess.Popen(words, stdout=out, stderr=out, env=env, start_new_session=True)

    def over(self, now: float) -> bool:
        """Whether it has ended; what it did is counted."""
        if now > self.until + 20:
            os.killpg(self.process.pid, signal.SIGKILL)
        pid, status, used = os.wait4(self.process.pid, 0 if now > self.until + 20 else os.WNOHANG)
        if not pid:
            return False
        self.process.returncode = os.waitstatus_to_exitcode(status)
        self._count(used)
        early = self.until - time.monotonic() > 5
        self.row["ended_early"] += early
        if early and self.left:
            self.left -= 1
            self.start()
            return False
        return True

    def _count(self, used: resource.struct_rusage) -> None:
        text = self.log.read_bytes()[self.said :].decode(errors="replace")
        for key, pattern in PATTERNS.items():
            found = [int(match[match.lastindex or 0]) for match in re.finditer(pattern, text, re.M)]
            value = found[-1] if found else 0
            self.row[key] = self.row[key] + value if key in ADDS else max(self.row[key], value)
        self.row["seconds"] += round(time.monotonic() - self.begun, 1)
        self.row["cpu_seconds"] += round(used.ru_utime + used.ru_stime, 1)
        self.row["peak_mib"] = max(self.row["peak_mib"], used.ru_maxrss >> 10)
        slow = self.folder / "slow" / f"{self.name}.txt"
        self.row["slowest_s"] = float(slow.read_text()) if slow.exists() else 0


def fuzzed(names: list[str], folder: Path, seconds: float) -> dict[str, Any]:
    """Run them all until the time is over; the rows by name."""
    until = time.monotonic() + seconds
    running = [Harness(name, folder, until) for name in names]
    done: dict[str, Any] = {}
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    while running:
        try:
            time.sleep(0.5)
        except KeyboardInterrupt:  # the time is over earlier than was said: what has been done so far is told
            until = time.monotonic() - 60
            for one in running:
                one.until = until
        for one in [one for one in running if one.over(time.monotonic())]:
            running.remove(one)
            done[one.name] = one.row
    return done


def added(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """A row and an earlier one of the same reader: times and inputs add up, the rest is the most of both."""
    return {k: round(old.get(k, 0) + v, 3) if k in ADDS else max(old.get(k, 0), v) for k, v in new.items()}


def uncaught(folder: Path, name: str) -> list[str]:
    """The kinds of exceptions, and the inputs on which libFuzzer itself gave up."""
    outcome = sorted((folder / "crashes").glob(f"{name}-*"))
    said = [path.read_text().partition("\n")[0] for path in outcome if path.suffix == ".txt"]
    return said + [path.name for path in outcome if path.name.startswith((f"{name}-timeout", f"{name}-oom"))]


def idle(folder: Path, name: str, row: dict[str, Any]) -> list[str]:
    """A reader that was given nothing has not been put to the test: why."""
    if row["inputs"]:
        return []
    said = (folder / f"{name}.log").read_text(errors="replace").strip().splitlines()
    return [f"it did not run: {said[-1][:120] if said else 'it said nothing'}"]


def minimised(names: list[str], folder: Path, seconds: int) -> None:
    """Corpora that reach the same edges with few and small inputs; the merges run side by side."""
    jobs = []
    for name in names:
        small = folder / "small" / name
        shutil.rmtree(small, ignore_errors=True)
        small.mkdir(parents=True)
        words = [sys.executable, "-m", "tests.fuzz.run", name, "-merge=1", f"-max_total_time={seconds}", str(small), str(folder / "corpus" / name)]  # fmt: skip
        env = os.environ | {"FUZZ_FOLDER": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
        jobs.append(subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=env))
    until = time.monotonic() + seconds + 30
    for job in jobs:
        try:
            job.wait(max(until - time.monotonic(), 0.1))
        except subprocess.TimeoutExpired:
            job.kill()


def table(rows: dict[str, Any]) -> str:
    """The rows in Markdown."""
    head = (
        "| reader | inputs | seconds | CPU s | edges | features | peak MiB | slowest input, CPU s | uncaught |\n"
        + "|---" * 9
        + "|\n"
    )
    keys = ("inputs", "seconds", "cpu_seconds", "edges", "features", "peak_mib", "slowest_s")
    return head + "".join(
        f"| {name} | {' | '.join(str(row[key]) for key in keys)} | {'; '.join(row['uncaught']) or 'none'} |\n"
        for name, row in sorted(rows.items())
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", help="readers; all of them unless some are named")
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--folder", default="build/fuzz")
    parser.add_argument("--minimise", action="store_true")
    args = parser.parse_args()
    folder, names = Path(args.folder).resolve(), args.names or list(PARSERS)
    for part in ("crashes", "slow"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    if args.minimise:
        minimised(names, folder, int(args.seconds))
        return 0
    result = folder / "fuzz.json"
    before = json.loads(result.read_text())["rows"] if result.exists() else {}
    rows = before | {
        name: added(before.get(name, {}), row) for name, row in fuzzed(names, folder, args.seconds).items()
    }
    rows = {name: row | {"uncaught": uncaught(folder, name) or idle(folder, name, row)} for name, row in rows.items()}
    whole = {
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "command": "python -m tests.fuzz.all --seconds N --folder FOLDER, added up over its calls",
        "rows": rows,
    }
    result.write_text(json.dumps(whole, indent=1) + "\n")
    (folder / "fuzz.md").write_text(table(rows))
    print(table(rows))
    return 1 if any(row["uncaught"] for row in rows.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
