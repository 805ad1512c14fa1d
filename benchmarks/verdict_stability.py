"""Does `gpuready check` say the same of the same machine every time?

    python benchmarks/verdict_stability.py [--repeats 1000] [--loaded 300] [--jobs 1] [--python PATH] [-o FILE]

Whole processes, the four frameworks in each, on this machine as it is; the last ``--loaded`` of them while every processor that it may use is kept
busy. ``--jobs`` runs so many at a time. 99.5 % of the runs must agree in the verdicts, in the codes of the errors, and in those of what
stays undecided. The codes of all findings, those of what holds and the sentences are compared as well, and what differs is told;
but they decide nothing, for a live machine moves: others take memory and leave it, clocks fall, a disk fills. Exit 1 where the goal
is missed.
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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOUR = ("transformers", "axolotl", "colossalai", "roll")
BUSY = "while True: pass"
GOAL = 0.995
KEPT = ("verdicts", "errors", "undecided")
"""What must agree."""
KINDS = (*KEPT, "findings", "holds", "sentences")
LIMIT = 60.0
"""Seconds that one run may take before it counts as one without an answer."""

Said = dict[str, tuple[str, ...]]
"""What one run said, by kind: rows such as ``transformers: not-ready``, in order."""


def answered(python: str) -> tuple[dict[str, Any], str]:
    """The document of one run, or why there is none."""
    argv = [sys.executable, "-m", "gpuready", "check", *FOUR, "--json"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    try:
        done = subprocess.run(
            argv + (["--python", python] if python else []), capture_output=True, text=True, env=env, timeout=LIMIT
        )
        return json.loads(done.stdout), ""
    except subprocess.TimeoutExpired:
        return {}, f"no answer in {LIMIT:.0f} s"
    except ValueError:
        return {}, f"exit {done.returncode} without a document: {done.stderr[-200:]}"


def once(python: str) -> tuple[Said, float]:
    """One run, reduced to what must not change, and its seconds."""
    begun = time.perf_counter()
    document, wrong = answered(python)
    took = time.perf_counter() - begun
    if wrong:
        return dict.fromkeys(KINDS, (wrong,)), took
    said: dict[str, list[str]] = {kind: [] for kind in KINDS}
    for row in document["reports"]:
        name = row["contract"]["framework"]
        kinds = {
            "verdicts": [row["verdict"]],
            "errors": [one["code"] for one in row["findings"] if one["severity"] == "error"],
            "findings": [f"{one['severity']} {one['code']}" for one in row["findings"]],
            "undecided": [one["code"] for one in row["undecided"]],
            "holds": [one["code"] for one in row["judged"]],
            "sentences": [f"{one['code']} {one['says']}" for one in row["findings"]],
        }
        for kind, texts in kinds.items():
            said[kind].extend(f"{name}: {text}" for text in sorted(texts))
    return {kind: tuple(rows) for kind, rows in said.items()}, took


def repeated(count: int, python: str, jobs: int) -> list[tuple[Said, float]]:
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(once, [python] * count))


def loaded(count: int, python: str, jobs: int) -> list[tuple[Said, float]]:
    """The same while twice as many processes as processors do nothing but compute."""
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(2 * len(os.sched_getaffinity(0)))]
    try:
        return repeated(count, python, jobs)
    finally:
        for one in busy:
            one.kill()
            one.wait()


def shares(found: list[Said]) -> dict[str, dict[str, Any]]:
    """How many agree with the most frequent answer, and in what the others differ from it."""
    rows = {}
    for kind in KINDS:
        (usual, times), *others = Counter(one[kind] for one in found).most_common()
        rows[kind] = {"equal": round(times / len(found), 5), "answers": 1 + len(others)}
        if others:
            rows[kind]["others"] = [{"times": n, **differs(usual, other)} for other, n in others[:10]]
    return rows


def differs(usual: tuple[str, ...], other: tuple[str, ...]) -> dict[str, list[str]]:
    found = {"more": [row for row in other if row not in usual], "less": [row for row in usual if row not in other]}
    return {key: rows[:10] for key, rows in found.items() if rows}


def hardware(python: str) -> str:
    """The processors, and the GPUs as gpuready sees them."""
    machine = f"{len(os.sched_getaffinity(0))} CPUs ({platform.processor() or platform.machine()}), Python {platform.python_version()}"
    document, _ = answered(python)
    facts = {one["key"]: one["value"] for one in document["reports"][0]["facts"]} if document else {}
    if not facts.get("gpu.name"):
        return machine
    gpus = Counter(facts["gpu.name"])
    outcome = ", ".join(f"{count} {name}" for name, count in gpus.items())
    return f"{outcome}, driver {facts.get('driver.version')}, {machine}"


def seconds(took: list[float]) -> dict[str, float]:
    ordered = sorted(took)
    return {"median": round(ordered[len(ordered) // 2], 3), "most": round(ordered[-1], 3)} if took else {}


def asked() -> argparse.Namespace:
    read = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    read.add_argument("--repeats", type=int, default=1000)
    read.add_argument("--loaded", type=int, default=300, help="so many of them while the processors are busy")
    read.add_argument("--jobs", type=int, default=1, help="how many run at a time")
    read.add_argument("--python", default="", help="the environment that is looked at")
    read.add_argument("-o", default=str(ROOT / "benchmarks" / "results" / "verdict-stability-2core.json"))
    args = read.parse_args()
    if args.jobs < 1 or not 0 <= args.loaded <= args.repeats or args.repeats < 1:
        read.error("--jobs and --repeats are at least 1, and --loaded is a part of --repeats")
    return args


def main() -> None:
    reported, before = asked(), os.getloadavg()[0]
    machine = hardware(reported.python)
    begun = time.perf_counter()
    quiet = repeated(reported.repeats - reported.loaded, reported.python, reported.jobs)
    busy = loaded(reported.loaded, reported.python, reported.jobs) if reported.loaded else []
    every = shares([said for said, _ in quiet + busy])
    verdicts = Counter(said["verdicts"] for said, _ in quiet + busy)
    result = {
        "benchmark": "verdict_stability",
        "date": time.strftime("%Y-%m-%d"),
        "command": " ".join(["python", "benchmarks/verdict_stability.py", *sys.argv[1:]]),
        "hardware": machine,
        "load": {"before": round(before, 2), "after": round(os.getloadavg()[0], 2)},
        "repeats": {"as it is": len(quiet), "under load": len(busy), "at a time": reported.jobs},
        "seconds": {
            "as it is": seconds([took for _, took in quiet]),
            "under load": seconds([took for _, took in busy]),
            "whole": round(time.perf_counter() - begun, 1),
        },
        "goal": GOAL,
        "holds": all(every[kind]["equal"] >= GOAL for kind in KEPT),
        "usual": verdicts.most_common(1)[0][0],
        "all": every,
    }
    Path(reported.o).write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    sys.exit(0 if result["holds"] else 1)


if __name__ == "__main__":
    main()
