"""The speed of a machine's cores, and of threads that wake up on them: for benchmarks/host_placement.py."""

from __future__ import annotations

import multiprocessing
import os
import statistics
import subprocess
import threading
import time
from pathlib import Path
from typing import Any


def describe_machine() -> dict[str, Any]:
    cpu = "/sys/devices/system/cpu"
    names = ["/sys/kernel/mm/transparent_hugepage/enabled", "/sys/devices/system/node/online"]
    names += [f"{cpu}/cpuidle/current_{what}" for what in ("driver", "governor")]
    names += sorted(map(str, Path(cpu).glob("cpu[0-9]*/topology/thread_siblings_list")))
    names += sorted(map(str, Path("/sys/bus/pci/devices").glob("*/numa_node")))
    lscpu = subprocess.run(["lscpu"], capture_output=True, text=True).stdout
    return {
        **{name: read_text(name) for name in names},
        "lscpu": lscpu,
        "stat": read_text("/proc/stat").splitlines()[0],
    }


def read_text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        return f"({error.strerror})"


def time_loop(turns: int = 20000) -> float:
    """Return the seconds of a fixed loop of Python: the speed of the core."""
    begun, total = time.perf_counter(), 0
    for at in range(turns):
        total += at ^ 5
    return time.perf_counter() - begun


def time_chase(steps: int = 40000, size: int = 1 << 20) -> float:
    """Return the seconds of steps through a list of 40 MB in random order: the speed of caches and memory."""
    import random

    if not hasattr(time_chase, "ring"):
        order = list(range(size))
        random.Random(1).shuffle(order)
        time_chase.ring = order  # type: ignore[attr-defined]
    ring, at = time_chase.ring, 0  # type: ignore[attr-defined]
    begun = time.perf_counter()
    for _ in range(steps):
        at = ring[at]
    return time.perf_counter() - begun


def time_cores(count: int) -> dict[str, Any]:
    """Time the loop on each core, three times round, and on core 0 while another core is busy: siblings slow each other."""
    before = os.sched_getaffinity(0)
    rounds: list[list[float]] = []
    for _ in range(3):
        rounds.append([])
        for core in range(count):
            os.sched_setaffinity(0, {core})
            rounds[-1].append(min(time_loop() for _ in range(8)))
    beside = []
    for core in range(1, count):
        busy = multiprocessing.get_context("fork").Process(target=_keep_busy, args=(core,))
        busy.start()
        os.sched_setaffinity(0, {0})
        time.sleep(0.03)
        beside.append(min(time_loop() for _ in range(12)))
        busy.kill()
        busy.join()
    os.sched_setaffinity(0, before)
    return {"rounds": rounds, "core 0 beside": beside}


def _keep_busy(core: int) -> None:
    os.sched_setaffinity(0, {core})
    while True:
        time_loop()


def time_wakes() -> dict[str, list[float]]:
    """Return how long a waiting thread takes to start, and its first and last chunk of work, after rests of several lengths."""
    ask, answer = os.eventfd(0), os.eventfd(0)
    seen: list[float] = []

    def serve() -> None:
        while os.read(ask, 8) and seen[-1:] != [-1.0]:
            woken = time.perf_counter()
            chunks = [time_loop(2000) for _ in range(12)]
            seen[:] = [woken, chunks[0], chunks[-1]]
            os.write(answer, b"\1" + bytes(7))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    found: dict[str, list[float]] = {}
    for rest in (0.0002, 0.005, 0.05):
        turns = []
        for _ in range(8):
            time.sleep(rest)
            begun = time.perf_counter()
            os.write(ask, b"\1" + bytes(7))
            os.read(answer, 8)
            turns.append([seen[0] - begun, seen[1], seen[2], time_loop(2000)])
        found[str(rest)] = [statistics.median(column) for column in zip(*turns, strict=True)]
    seen[:] = [-1.0]
    os.write(ask, b"\1" + bytes(7))
    return found
