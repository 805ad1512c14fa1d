"""What every command costs beside the start of Python: time on the clock, of the processor, modules and memory.

    python benchmarks/command_speed.py [--rounds 9] [--only WORD] [--imports NAME] [-o FILE.json]

The commands run in turn, round after round, so that a slow moment falls on all; the first round fills the caches and is not
counted. Servers are timed until they answer. ``--imports NAME`` shows instead where the imports of one command go.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from importlib.util import find_spec
from pathlib import Path

from check_speed import peak

ROOT = Path(__file__).resolve().parent.parent
MACHINES = ROOT / "tests" / "machines"
MAIN = ["-c", "from gpuready.cli import main; main()"]
BARE = "python -c pass"
SLOW = 1.0
"""Seconds beyond which a command is run in only a third of the rounds."""
HELLO = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "clock", "version": "1"}},
}  # fmt: skip
UNTIL = {"serve": (b"", 2), "mcp": (json.dumps(HELLO).encode() + b"\n", 1)}
"""Servers: what they are sent, and the stream whose first line ends the clock."""
EXTRAS = {"serve": "uvicorn", "mcp": "mcp_types"}
"""What a command needs that may not be installed; without it there is no row."""


def commands(folder: Path) -> dict[str, list[str]]:
    """Every command by the name of its row, in the order of the help."""
    h200, old = str(MACHINES / "h200.json"), str(MACHINES / "old-driver.json")
    log, script = folder / "run.log", folder / "nothing.py"
    log.write_text(logged())
    script.write_text("pass\n")
    return {
        "--version": ["--version"],
        "--help": ["--help"],
        "check --help": ["check", "--help"],
        "check": ["check"],
        "check transformers": ["check", "transformers"],
        "check transformers --json": ["check", "transformers", "--json"],
        "check --on FILE": ["check", "transformers", "--on", h200],
        "check --on NAME": ["check", "transformers", "--on", "h100x8"],
        "prove --list": ["prove", "--list"],
        "plan --no-resolve": ["plan", "transformers", "--on", "h100x8", "--no-resolve"],
        "plan, from the cache": ["plan", "transformers", "--on", "h100x8"],
        "fit, 8B": ["fit", "llama-3.1-8b", "--on", "h200"],
        "env": ["env", "transformers", "--on", h200],
        "run, one rank of nothing": ["run", "--nproc", "1", "-q", "--", str(script)],
        "diagnose, 4,000 lines": ["diagnose", str(log)],
        "diff": ["diff", old, h200],
        "explain": ["explain", "DRV001"],
        "probe": ["probe"],
        "bench --list": ["bench", "--list"],
        "report": ["report", "--on", h200, "-o", str(folder / "page.html")],
        "serve": ["serve", "--port", "0", "--no-open"],
        "mcp": ["mcp"],
        "completion": ["completion", "bash"],
        "fleet check --prolog": ["fleet", "check", "--prolog"],
        "contract list": ["contract", "list"],
        "contract show": ["contract", "show", "transformers"],
    }


def logged() -> str:
    from log_speed import FAILURE

    line = "[rank{r}]: 2026-11-15 12:00:{s:02d},{r:03d} INFO trainer.py:212 step {n} loss 2.{n} tokens/s 3{n}\n"
    return "".join(line.format(r=n % 64, s=n % 60, n=n) for n in range(3994)) + FAILURE.format(r=3, g=3)


def environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPATH": str(ROOT / "src")}


def once(name: str, argv: list[str], folder: Path) -> dict[str, float]:
    """One run: seconds on the clock and of the processor, of a server its peak bytes, exit code."""
    sent, stream = UNTIL.get(name, (b"", 0))
    peaked = 0
    with open(folder / "err", "wb") as errors:
        begun = time.perf_counter()
        child = subprocess.Popen(
            argv,
            stdin=subprocess.PIPE if sent else subprocess.DEVNULL,
            stdout=subprocess.PIPE if stream == 1 else subprocess.DEVNULL,
            stderr=subprocess.PIPE if stream == 2 else errors,
            cwd=folder,
            env=environment(),
        )
        if stream:
            _greet(child, sent, stream)
            seconds, peaked = time.perf_counter() - begun, held(child.pid)
            child.terminate()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        seconds = seconds if stream else time.perf_counter() - begun
    if not stream and child.returncode not in (0, 1, 3):
        raise SystemExit(f"{name}: exit {child.returncode}: {(folder / 'err').read_text()[-500:]}")
    cpu = used.ru_utime + used.ru_stime
    return {"wall": seconds, "cpu": cpu, "peak": peaked, "exit": child.returncode}


def held(pid: int) -> int:
    """The peak bytes of a process that lives."""
    return int(Path(f"/proc/{pid}/status").read_text().partition("VmHWM:")[2].split()[0]) * 1024


def _greet(child: subprocess.Popen[bytes], sent: bytes, stream: int) -> None:
    if sent and child.stdin:
        child.stdin.write(sent)
        child.stdin.flush()
    pipe = child.stdout if stream == 1 else child.stderr
    if not pipe or not pipe.readline():
        raise SystemExit(f"{' '.join(child.args[3:])} ended before it answered")  # type: ignore[index]


def imported(argv: list[str], folder: Path) -> list[tuple[int, str]]:
    """Microseconds by themselves and name of every module that a command imports."""
    words = [argv[0], "-X", "importtime", *argv[1:]]
    sent = {"input": b""} if argv[3:] == ["mcp"] else {"stdin": subprocess.DEVNULL}
    ran = subprocess.run(words, capture_output=True, cwd=folder, env=environment(), timeout=60, **sent)  # type: ignore[call-overload]
    rows = re.findall(r"^import time:\s+(\d+) \|\s+\d+ \|\s*(\S+)$", ran.stderr.decode(errors="replace"), re.M)
    return [(int(own), name) for own, name in rows]


def costly(argv: list[str], folder: Path, several: int = 7) -> str:
    """The imports that take longest, each at its fastest of several runs."""
    least: dict[str, int] = {}
    for _ in range(several):
        for own, name in imported(argv, folder):
            least[name] = min(own, least.get(name, own))
    rows = sorted(least.items(), key=lambda row: -row[1])
    whole = [("all of them", sum(least.values())), *rows[:40]]
    return "\n".join(f"{own / 1000:8.2f} ms  {name}" for name, own in whole)


def measure(table: dict[str, list[str]], rounds: int, folder: Path) -> dict[str, dict[str, float]]:
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in table}
    for turn in range(rounds + 1):
        for name, argv in table.items():
            if turn > 1 and turn % 3 and runs[name] and runs[name][-1]["wall"] > SLOW:
                continue
            found = once(name, argv, folder)
            if turn:
                runs[name].append(found)
    bare = {key: statistics.median(run[key] for run in runs[BARE]) for key in ("wall", "cpu")}
    return {name: _row(found, bare) for name, found in runs.items()}


def _row(found: list[dict[str, float]], bare: dict[str, float]) -> dict[str, float]:
    wall = statistics.median(run["wall"] for run in found)
    cpu = statistics.median(run["cpu"] for run in found)
    return {
        "median_s": round(wall, 4), "least_s": round(min(run["wall"] for run in found), 4), "processor_s": round(cpu, 4),
        "x_python": round(wall / bare["wall"], 2), "x_python_processor": round(cpu / bare["cpu"], 2),
        "peak_bytes": int(max(run["peak"] for run in found)), "runs": len(found), "exit": int(found[-1]["exit"]),
    }  # fmt: skip


def untimed(rows: dict[str, dict[str, float]], table: dict[str, list[str]], folder: Path) -> None:
    """Each row gets its peak memory and the number of modules that it has beyond those of Python's own start."""
    start = {name for _, name in imported(table[BARE], folder)}
    for name, row in rows.items():
        if name not in UNTIL:  # a server does not end by itself
            row["modules"] = len({one for _, one in imported(table[name], folder)} - start)
            row["peak_bytes"] = peak(table[name], folder, environment())


def show(rows: dict[str, dict[str, float]]) -> str:
    head = f"{'command':28} {'median':>9} {'x python':>9} {'of the CPU':>11} {'modules':>8} {'peak MB':>8} {'exit':>5}"
    lines = [
        f"{name:28} {row['median_s'] * 1000:7.1f}ms {row['x_python']:9.2f} {row['x_python_processor']:11.2f} "
        f"{row.get('modules', ''):>8} {row['peak_bytes'] / 1e6:8.1f} {row['exit']:5}"
        for name, row in rows.items()
    ]
    return "\n".join([head, *lines])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="rows whose name has this word")
    parser.add_argument("--imports", default="", help="show the imports of this row")
    parser.add_argument("-o", "--output")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        table = {BARE: [sys.executable, "-c", "pass"]}
        table |= {
            key: [sys.executable, *MAIN, *words]
            for key, words in commands(folder).items()
            if (options.only in key or key == options.imports) and find_spec(EXTRAS.get(key, "json"))
        }
        if options.imports:
            print(costly(table[options.imports], folder))
            return
        rows = measure(table, options.rounds, folder)
        untimed(rows, table, folder)
    print(show(rows))
    if options.output:
        about = {
            "date": date.today().isoformat(),
            "command": f"python benchmarks/command_speed.py --rounds {options.rounds}",
            "python": platform.python_version(),
            "machine": f"{os.cpu_count()} cores, {platform.machine()}, Linux {platform.release()}",
            "load": round(os.getloadavg()[0], 1),
        }
        Path(options.output).write_text(json.dumps({"about": about, "results": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
