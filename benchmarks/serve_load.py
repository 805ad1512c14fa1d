"""How `gpuready serve` bears a crowd: answers a second, their time, errors, and whether its memory stays what it was.

    python benchmarks/serve_load.py [--rate 200] [--seconds 20] [--requests 50000] [-o FILE]

A server is started as a user starts it, on this machine's processors, and asked the what-if question of the page from another
process that shares them. First at a fixed rate, each request sent when it is due, so that a slow answer delays no other; then as
fast as it goes until so many are answered, with the memory of server and workers taken on the way. The first questions are new to
it, the others mostly not: a page asks the same again with one thing changed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
TOKEN = "a-token-of-the-benchmark"
FRAMEWORKS = ("axolotl", "transformers", "trl", "vllm", "deepspeed", "verl")
GPUS = ("h100", "a100-80gb", "rtx4090", "l40s", "h200", "rtx3090")
MODELS = ("qwen2.5-0.5b", "llama-3.2-1b", "qwen2.5-1.5b")


def questions(several: int, seed: int = 7) -> list[str]:
    """Different questions of the page, the same ones in every run."""
    draw, found = random.Random(seed), {}
    while len(found) < several:
        method, batch = draw.choice(("lora", "qlora", "full")), draw.choice((1, 2, 4))
        found[
            f"/api/whatif?framework={draw.choice(FRAMEWORKS)}&gpu={draw.choice(GPUS)}&count={draw.choice((1, 2, 4, 8))}"
            f"&model={draw.choice(MODELS)}&method={method}&micro-batch={batch}"
        ] = None
    return list(found)


class Line:
    """One connection that is kept open."""

    def __init__(self, port: int):
        self.port, self.pipes = port, None

    async def ask(self, path: str) -> tuple[int, bytes]:
        if self.pipes is None:
            self.pipes = await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 22)
        reader, writer = self.pipes
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
        writer.write(head.encode())
        outcome = await reader.readuntil(b"\r\n\r\n")
        size = next(
            int(row.split(b":")[1]) for row in outcome.lower().split(b"\r\n") if row.startswith(b"content-length")
        )
        return int(outcome.split()[1]), await reader.readexactly(size)


def memory(pid: int) -> dict[str, int]:
    """Bytes of the server and of its workers, as the kernel counts what is theirs alone (PSS)."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    rows = {"server": [pid], "workers": [int(child) for child in children]}
    return {name: sum(_pss(one) for one in pids) for name, pids in rows.items()}


def _pss(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:  # a worker that was just replaced
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:")), 0)


async def at_a_rate(port: int, paths: list[str], rate: float, seconds: float) -> dict[str, object]:
    """Every request at its time, on a connection that is free; the time counts from when it was due."""
    free: list[Line] = []
    took, wrong = [], []

    async def one(path: str, due: float) -> None:
        line = free.pop() if free else Line(port)
        try:
            status, body = await asyncio.wait_for(line.ask(path), 30)
            took.append(time.perf_counter() - due)
            if status != 200 or b'"parts"' not in body:
                wrong.append(status)
            free.append(line)
        except Exception as error:
            wrong.append(repr(error))

    draw, tasks, begun = random.Random(3), [], time.perf_counter()
    for number in range(int(rate * seconds)):
        due = begun + number / rate
        await asyncio.sleep(max(0.0, due - time.perf_counter()))
        tasks.append(asyncio.ensure_future(one(draw.choice(paths), due)))
    await asyncio.gather(*tasks)
    spent = time.perf_counter() - begun
    return {"asked_per_second": rate, "answered_per_second": round(len(took) / spent, 1), "requests": len(tasks),
            "errors": len(wrong), "first_errors": [str(one) for one in wrong[:3]], **spread(took)}  # fmt: skip


def spread(took: list[float]) -> dict[str, float]:
    rows = sorted(took)
    return {
        f"p{share}_ms": round(rows[min(len(rows) - 1, len(rows) * share // 100)] * 1e3, 2)
        for share in (50, 95, 99, 100)
    }


async def first(port: int, paths: list[str]) -> dict[str, object]:
    """New questions, one at a time: how long until the first answer, and until every part is there."""
    line, at_once, whole, parts = Line(port), [], [], 0
    for path in paths:
        begun = time.perf_counter()
        _, body = await line.ask(path)
        at_once.append(time.perf_counter() - begun)
        parts += len(json.loads(body)["parts"])
        await line.ask(path + "&wait=15")
        whole.append(time.perf_counter() - begun)
    return {
        "questions": len(paths),
        "answer": spread(at_once),
        "every_part": spread(whole),
        "parts_at_once": round(parts / len(paths), 2),
    }


async def many(port: int, pid: int, paths: list[str], count: int, lines: int = 16) -> dict[str, object]:
    """As fast as it goes, with the memory on the way."""
    left, errors, held = count, 0, []
    draw, begun = random.Random(5), time.perf_counter()

    async def keep() -> None:
        nonlocal left, errors
        line = Line(port)
        while left > 0:
            left -= 1
            if left % (count // 10) == 0:
                held.append({"requests": count - left, **{k: v >> 10 for k, v in memory(pid).items()}})
            status, _ = await line.ask(draw.choice(paths))
            errors += status != 200

    await asyncio.gather(*(keep() for _ in range(lines)))
    spent = time.perf_counter() - begun
    base, last = held[0], held[-1]
    grown = (last["server"] + last["workers"]) / (base["server"] + base["workers"])
    return {
        "requests": count,
        "per_second": round(count / spent),
        "errors": errors,
        "memory_kib": held,
        "last_to_first": round(grown, 4),
    }


async def measured(port: int, pid: int, args: argparse.Namespace) -> dict[str, object]:
    paths = questions(args.questions)
    found: dict[str, object] = {"new_questions": await first(port, paths[: args.new])}
    line = Line(port)
    for path in paths:  # every question once: what is measured from here on is the server, not the search
        await line.ask(path + "&wait=15")
    found["at_a_rate"] = await at_a_rate(port, paths, args.rate, args.seconds)
    found["many"] = await many(port, pid, paths, args.requests)
    return found


def main() -> None:
    read = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    read.add_argument("--rate", type=float, default=200)
    read.add_argument("--seconds", type=float, default=20)
    read.add_argument("--requests", type=int, default=50_000)
    read.add_argument("--questions", type=int, default=60)
    read.add_argument("--new", type=int, default=20)
    read.add_argument("-o", default=str(HERE / "results" / "serve-load.json"))
    args = read.parse_args()
    words = [sys.executable, "-m", "gpuready", "serve", "--port", "0", "--token", TOKEN, "--no-open"]
    run = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        port = int(run.stderr.readline().split(":")[3].partition("/")[0])
        time.sleep(3)
        begun = os.getloadavg()
        result = asyncio.run(measured(port, run.pid, args))
    finally:
        run.terminate()
        run.wait(20)
    head = {
        "benchmark": "serve_load",
        "date": time.strftime("%Y-%m-%d"),
        "command": " ".join(["python", "benchmarks/serve_load.py", *sys.argv[1:]]),
        "hardware": f"{os.cpu_count()} CPUs ({platform.processor() or platform.machine()}), Python {platform.python_version()}",
        "load_before": round(begun[0], 2),
    }
    text = json.dumps(head | result, indent=2)
    Path(args.o).write_text(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
