"""Does `tarmac check` say the same of the same machine every time?

    python benchmarks/verdict_stability.py [--repeats 1000] [--loaded 300] [--python PATH] [-o FILE]

Whole processes, the four frameworks in each, one after the other on this machine as it is; the last ``--loaded`` of them while every
processor is kept busy. Compared are the verdicts, the set of findings (code, severity and sentence), and the set of what stays undecided.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOUR = ("transformers", "axolotl", "colossalai", "roll")
BUSY = "while True: pass"
GOAL = 0.995


def once(python: str) -> dict[str, str]:
    """One run, reduced to what must not change: by framework, as text that can be counted."""
    argv = [
        sys.executable,
        "-m",
        "tarmac",
        "check",
        *FOUR,
        "--json",
        *(["--python", python] if python else []),
    ]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(argv, capture_output=True, text=True, env=env)
    if not done.stdout:
        return dict.fromkeys(
            ("verdicts", "findings", "undecided", "holds"), f"exit {done.returncode}: {done.stderr[-200:]}"
        )
    reports = json.loads(done.stdout)
    rows = reports["reports"] if isinstance(reports, dict) and "reports" in reports else [reports]
    return {
        "verdicts": json.dumps([(row["contract"]["framework"], row["verdict"]) for row in rows]),
        "findings": json.dumps(
            [sorted((f["code"], f["severity"], f["says"]) for f in row["findings"]) for row in rows]
        ),
        "undecided": json.dumps([sorted(u["code"] for u in row["undecided"]) for row in rows]),
        "holds": json.dumps([sorted(j["code"] for j in row["judged"]) for row in rows]),
    }


def repeated(count: int, python: str) -> tuple[list[dict[str, str]], list[float]]:
    found, took = [], []
    for _ in range(count):
        begun = time.perf_counter()
        found.append(once(python))
        took.append(time.perf_counter() - begun)
    return found, took


def loaded(count: int, python: str) -> tuple[list[dict[str, str]], list[float]]:
    """The same while twice as many processes as processors do nothing but compute."""
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(2 * (os.cpu_count() or 1))]
    try:
        return repeated(count, python)
    finally:
        for one in busy:
            one.kill()
            one.wait()


def shares(found: list[dict[str, str]]) -> dict[str, object]:
    """How many agree with the most frequent answer, and what the others said."""
    rows = {}
    for kind in found[0]:
        counts = Counter(one[kind] for one in found)
        (_, times), *others = counts.most_common()
        rows[kind] = {"equal": round(times / len(found), 5), "different_answers": len(counts),
                      "others": [{"times": n, "answer": text[:400]} for text, n in others[:5]]}  # fmt: skip
    return rows


def main() -> None:
    read = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    read.add_argument("--repeats", type=int, default=1000)
    read.add_argument("--loaded", type=int, default=300)
    read.add_argument("--python", default="", help="the environment that is looked at")
    read.add_argument("-o", default=str(ROOT / "benchmarks" / "results" / "verdict-stability.json"))
    told = read.parse_args()
    before = os.getloadavg()[0]
    quiet, first = repeated(told.repeats - told.loaded, told.python)
    busy, second = loaded(told.loaded, told.python)
    every = shares(quiet + busy)
    result = {
        "benchmark": "verdict_stability",
        "date": time.strftime("%Y-%m-%d"),
        "command": " ".join(["python", "benchmarks/verdict_stability.py", *sys.argv[1:]]),
        "hardware": f"{os.cpu_count()} CPUs ({platform.processor() or platform.machine()}), Python {platform.python_version()}",
        "load": {"before": round(before, 2), "after": round(os.getloadavg()[0], 2)},
        "repeats": {"as it is": len(quiet), "under load": len(busy)},
        "median_seconds": {
            "as it is": round(sorted(first)[len(first) // 2], 3),
            "under load": round(sorted(second)[len(second) // 2], 3),
        },
        "goal": GOAL,
        "holds": all(float(str(row["equal"])) >= GOAL for row in every.values()),  # type: ignore[index]
        "all": every,
        "usual": json.loads(Counter(one["verdicts"] for one in quiet + busy).most_common(1)[0][0]),
    }
    Path(told.o).write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
