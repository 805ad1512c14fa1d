"""What ``gpuready.launch()`` costs beside a bare ``init_process_group``, and what the roll-call costs by itself.

    python benchmarks/launch_overhead.py --python PYTHON-WITH-TORCH [--pairs 20] [--ranks 1 2 4 8] [-o FILE]

A start is timed from the first process to the end of the first all-reduce on the last rank, one Python for each rank.
The two ways are run in turn, and each pair gives one ratio; the median has its interval of 95 % by bootstrap.
``group`` is the part after the imports: from the call to the end of the first all-reduce, on the slowest rank. ``cpu`` is the processor time of all ranks
until their end, which other work on the machine hardly changes.
The roll-call alone has ranks that are forks waiting at one signal; the crowd are connections of one other process.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import random
import resource
import socket
import statistics
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

BEGIN = "import time, os, torch, torch.distributed as dist\n"
WAYS = {
    "bare": BEGIN + "begun = time.monotonic()\ndist.init_process_group('gloo')\n",
    "launch": BEGIN + "import gpuready\nbegun = time.monotonic()\ngpuready.launch()\n",
}
END = "x = torch.ones(1)\ndist.all_reduce(x)\nassert x.item() == dist.get_world_size()\nprint(time.monotonic() - begun, time.monotonic(), flush=True)\n"
BARE_END = "dist.destroy_process_group()\n"


def free_port() -> int:
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return made.getsockname()[1]


def children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def start(python: str, way: str, size: int) -> tuple[float, float, float]:
    """Seconds of one start: the whole, the part after the imports, and the processor time of all ranks until they end."""
    shared = os.environ | {"PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1", "WORLD_SIZE": str(size)}
    shared |= {"LOCAL_WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    code = WAYS[way] + END + (BARE_END if way == "bare" else "")
    begun, used = time.monotonic(), children_seconds()
    running = [
        subprocess.Popen(
            [python, "-c", code], env=shared | {"RANK": str(r), "LOCAL_RANK": str(r)}, stdout=subprocess.PIPE, text=True
        )
        for r in range(size)
    ]
    result = [one.communicate(timeout=120)[0].split() for one in running]
    if any(one.returncode for one in running):
        raise SystemExit(f"{way} with {size} ranks failed")
    slowest = max(float(row[1]) for row in result) - begun, max(float(row[0]) for row in result)
    return (*slowest, children_seconds() - used)


def interval(ratios: list[float]) -> list[float]:
    draw = random.Random(1)
    medians = sorted(statistics.median(draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    return [round(medians[49], 3), round(medians[1949], 3)]


def pairs(python: str, size: int, count: int) -> dict[str, object]:
    rows: dict[str, list[tuple[float, float, float]]] = {"bare": [], "launch": []}
    for number in range(count):
        for way in ("bare", "launch") if number % 2 else ("launch", "bare"):
            rows[way].append(start(python, way, size))
    found: dict[str, object] = {"ranks": size, "pairs": count}
    for at, name in enumerate(("whole", "group", "cpu")):
        ratios = [a[at] / b[at] for a, b in zip(rows["launch"], rows["bare"], strict=True)]
        found[name] = {way: round(statistics.median(row[at] for row in rows[way]), 4) for way in rows}
        found[name] |= {"ratio": round(statistics.median(ratios), 3), "interval": interval(ratios)}  # type: ignore[operator]
    return found


# -- the roll-call alone --------------------------------------------------------------------------------


def attended(rank: int, size: int, port: int, ready: object, go: object, reported: object) -> None:
    from gpuready import rollcall
    from gpuready.cluster import Rendezvous
    from gpuready.rollcall import hello

    rendezvous = Rendezvous(rank, size, rank, size, address="127.0.0.1", port=port)
    mine = hello.make_hello(rendezvous, dict(os.environ))
    ready.release()
    go.wait()
    used = time.process_time()
    reported.put((rollcall.attend_rollcall(rendezvous, mine).seconds, time.process_time() - used))
    time.sleep(0.5)


def alone(size: int, count: int) -> dict[str, object]:
    """The roll-call of so many ranks on this host, all of them there at once: the slowest rank's seconds."""
    # A process that has torch has these already.
    for name in (
        "json",
        "resource",
        "threading",
        "gpuready.rollcall.trial_connections",
        "gpuready.rollcall.server",
        "gpuready.cluster",
    ):
        __import__(name)

    method, slowest, used = multiprocessing.get_context("fork"), [], []
    for _ in range(count):
        ready, go, reported = method.Semaphore(0), method.Event(), method.Queue()
        port = free_port()
        each = [method.Process(target=attended, args=(rank, size, port, ready, go, reported)) for rank in range(size)]
        for one in each:
            one.start()
        for _ in each:
            ready.acquire()
        go.set()
        rows = [reported.get(timeout=60) for _ in each]
        slowest.append(max(row[0] for row in rows))
        used.append(max(row[1] for row in rows))
        for one in each:
            one.join()
    return {
        "ranks": size,
        "runs": count,
        "median_s": round(statistics.median(slowest), 4),
        "worst_s": round(max(slowest), 4),
        "cpu_of_one_rank_s": round(statistics.median(used), 4),
    }


def crowd(port: int, size: int) -> None:
    from tests.simulated_ranks import SimulatedRanks

    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    result = SimulatedRanks(port, range(1, size), size, "a token").run(120)
    os._exit(0 if len(result) == size - 1 and all("go" in one for one in result.values()) else 1)


def many(size: int) -> dict[str, object]:
    """Rank 0 with so many simulated ranks: seconds from its first word to its last."""
    from gpuready import rollcall
    from gpuready.cluster import Rendezvous
    from gpuready.rollcall.hello import Hello

    port = free_port()
    rendezvous = Rendezvous(0, size, 0, 8, address="127.0.0.1", port=port)
    other = multiprocessing.get_context("fork").Process(target=crowd, args=(port, size))
    mine = Hello(
        0, size, 0, "node-0", 1000, "machine-0", clock=time.time(), versions={"torch": "2.13.0", "python": "3.11"}
    )
    other.start()
    found = rollcall.attend_rollcall(rendezvous, mine, window=120, token="a token")
    other.join()
    found.listener.close()
    return {"clients": size, "seconds": round(found.seconds, 3), "all_told": other.exitcode == 0}


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--python", default=sys.executable)
    asked.add_argument("--pairs", type=int, default=20)
    asked.add_argument("--ranks", type=int, nargs="*", default=[1, 2, 4, 8])
    asked.add_argument("--clients", type=int, nargs="*", default=[256, 1000, 5000])
    asked.add_argument("-o", "--output")
    options = asked.parse_args()
    found = {
        "date": str(date.today()),
        "hardware": f"{os.cpu_count()} cores, {platform.machine()}, Linux {'.'.join(platform.release().split('.')[:2])}",
        "load": round(os.getloadavg()[0], 1),
        "command": "python benchmarks/launch_overhead.py " + " ".join(sys.argv[1:]).replace(options.python, "PYTHON"),
        "start_to_first_all_reduce": [pairs(options.python, size, options.pairs) for size in options.ranks],
        "rollcall_alone": [alone(size, 20) for size in (2, 8)],
        "rollcall_crowd": [many(size) for size in options.clients],
    }
    text = json.dumps(found, indent=1)
    print(text)
    if options.output:
        Path(options.output).write_text(text + "\n")


if __name__ == "__main__":
    main()
