"""How fast does ``gpuready diagnose`` read? A log of 64 interleaved ranks, beside ripgrep with the same literals.

The log is made anew for each run (it compresses no better than a real one: every number differs) and removed afterwards. Each
reader is a process of its own; its peak memory is what the kernel says of it. The page cache is warm for all.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
SRC = HERE.parent / "src"
FAILURE = """[rank{r}]: Traceback (most recent call last):
[rank{r}]:   File "/home/me/train.py", line 88, in <module>
[rank{r}]:     loss.backward()
[rank{r}]:   File "/venv/lib/python3.12/site-packages/torch/_tensor.py", line 581, in backward
[rank{r}]:     torch.autograd.backward(
[rank{r}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.69 GiB. GPU {g} has a total capacity of 79.10 GiB of which 387.12 MiB is free. Including non-PyTorch memory, this process has 78.70 GiB memory in use. Of the allocated memory 77.10 GiB is allocated by PyTorch, and 481.70 MiB is reserved by PyTorch but unallocated.
"""


WORDS = [
    "the",
    "model",
    "answers",
    "with",
    "a",
    "short",
    "text",
    "about",
    "rivers",
    "and",
    "mountains",
    "while",
    "loading",
    "another",
    "batch",
    "of",
    "images",
]


def _line(rank: int, step: int) -> str:
    """One line of a training log: mostly steps; NCCL INFO, warnings, progress bars, requests with an id, a few tracebacks."""
    kind = random.random()
    if kind < 0.86:
        return (
            f"[rank{rank}]: 2026-11-15 12:{step // 60 % 60:02d}:{step % 60:02d},{rank:03d} INFO trainer.py:212 step {step} loss {random.random() * 3:.4f} "
            f"lr 1.0e-05 grad_norm {random.random():.3f} tokens/s {random.randrange(30000, 31000)} mem 61.2GiB\n"
        )
    if kind < 0.92:
        return f"node{rank // 8}:{1000 + rank}:{2000 + rank} [{rank % 8}] NCCL INFO Channel {step % 16:02d}/0 : {rank}[{rank % 8}] -> {rank + 1}[{rank % 8}] via P2P/CUMEM\n"
    if kind < 0.955:
        return f"{{'loss': {random.random():.4f}, 'grad_norm': {random.random():.4f}, 'learning_rate': {random.random() / 1e5:.6e}, 'epoch': {step / 1e4:.2f}}}\n"
    if kind < 0.975:
        return f"(WorkerDict pid={1000 + rank}) /venv/lib/python3.12/site-packages/torch/utils/checkpoint.py:85: UserWarning: None of the inputs have requires_grad=True. Gradients will be None\n"
    if kind < 0.995:
        return f"\r{step % 100:3d}%|{'█' * (step % 20):20}| {step}/100000 [{step // 3600:02d}:{step // 60 % 60:02d}<11:22, {random.random() * 5:.2f}it/s]"
    if kind < 0.9999:
        return f"INFO 11-15 12:00:00 engine.py:101] Received request cmpl-{random.getrandbits(128):032x}: prompt: '{' '.join(random.choices(WORDS, k=12))}'\n"
    return SKIPPED.format(r=rank, name=f"{random.getrandbits(64):016x}")


SKIPPED = """[rank{r}]: WARNING data.py:77: a sample is skipped
[rank{r}]: Traceback (most recent call last):
[rank{r}]:   File "/home/me/data.py", line 71, in load
[rank{r}]:     return Image.open(path)
[rank{r}]: PIL.UnidentifiedImageError: cannot identify image file '/data/{name}.jpg'
"""


def made(path: Path, size: int, ranks: int = 64) -> None:
    """A training run that dies of memory on rank 17 near its end, and of time-outs everywhere else."""
    random.seed(7)
    step = 0
    with path.open("wb") as out:
        while out.tell() < size:
            step += 1
            out.write("".join(_line(rank, step) for rank in random.sample(range(ranks), ranks)).encode())
        out.write(FAILURE.format(r=17, g=1).encode())
        for rank in range(ranks):
            if rank != 17:
                text = f"[rank{rank}]:[E1115 12:31:33.467642512 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=44, OpType=ALLREDUCE, NumelIn=683, NumelOut=683, Timeout(ms)=600000) ran for 600072 milliseconds before timing out.\n"
                out.write(text.encode())


def timed(words: list[str], env: dict[str, str] | None = None, runs: int = 3) -> dict[str, object]:
    """The best of several runs: seconds, peak memory and exit code."""
    best: dict[str, object] = {}
    for _ in range(runs):
        started = time.perf_counter()
        pid = os.posix_spawnp(
            words[0], words, env or os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
        )
        _, status, used = os.wait4(pid, 0)
        seconds = time.perf_counter() - started
        if not best or seconds < float(str(best["seconds"])):
            cpu = used.ru_utime + used.ru_stime
            best = {
                "seconds": round(seconds, 3),
                "cpu_seconds": round(cpu, 3),
                "peak_mb": round(used.ru_maxrss / 1024, 1),
                "exit": os.waitstatus_to_exitcode(status),
            }
    return best


def _clean_environment() -> dict[str, str]:
    """Without the variable that forbids byte-code: an installed gpuready has it, and compiling the tables takes 0.1 s."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def readers(log: Path, folder: Path, python: str) -> dict[str, tuple[list[str], dict[str, str]]]:
    env = _clean_environment() | {"PYTHONPATH": str(SRC)}
    code = "import sys; sys.path[:0] = [sys.argv[1]]; from gpuready.workflow.diagnose import load_pattern_table; print('\\n'.join(load_pattern_table().literals))"
    literals = subprocess.run([python, "-c", code, str(SRC)], capture_output=True, text=True, check=True).stdout
    patterns = folder / "literals.txt"
    patterns.write_text(literals)
    found = {"gpuready diagnose": ([python, "-m", "gpuready", "diagnose", "--json", str(log)], env)}
    if rg := shutil.which("rg"):
        found["ripgrep, same literals"] = (
            [rg, "-F", "-c", "--threads", "1", "--no-mmap", "-f", str(patterns), str(log)],
            dict(os.environ),
        )
    if grep := shutil.which("grep"):
        found["grep -F, same literals"] = (
            [grep, "-F", "-c", "-f", str(patterns), str(log)],
            os.environ | {"LC_ALL": "C"},
        )
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--mib", type=int, default=1000)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("-o", help="write the table as JSON")
    args = parser.parse_args()
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # one core for everybody
    rows: dict[str, object] = {}
    with tempfile.TemporaryDirectory() as folder:
        log, small = Path(folder) / "run.log", Path(folder) / "small.log"
        made(log, args.mib << 20)
        size = log.stat().st_size
        for name, (words, env) in readers(log, Path(folder), args.python).items():
            row = timed(words, env, args.runs)
            rows[name] = row | {
                "mb_per_s": round(size / 1e6 / float(str(row["seconds"])), 1),
                "mb_per_cpu_s": round(size / 1e6 / float(str(row["cpu_seconds"])), 1),
            }
            print(f"{name:36} {rows[name]}", flush=True)
        small.write_bytes(b"".join(log.open("rb").readlines(700_000)[:3900]) + FAILURE.format(r=3, g=3).encode())
        env = _clean_environment() | {"PYTHONPATH": str(SRC)}
        rows["4,000 lines, with process start"] = timed([args.python, "-m", "gpuready", "diagnose", str(small)], env, 7)
        print("4,000 lines, with process start     ", rows["4,000 lines, with process start"])
    result = {"bytes": size, "ranks": 64, "python": sys.version.split()[0], "cpu": _cpu(), "rows": rows}
    if args.o:
        Path(args.o).write_text(json.dumps(result, indent=2) + "\n")
    return 0


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(": ")[2]
    return ""


if __name__ == "__main__":
    sys.exit(main())
