"""Which rank failed first? Runs of several ranks whose output is shuffled and whose clocks are wrong by up to 300 seconds.

Without arguments the runs are made here: a failure in the words of its emitter on one rank, and on the others what follows from it.
With a folder, runs that were recorded are taken instead: one folder for each run with truth.json ({"rank": 3, "cause": "cuda-oom"})
and one file for each rank (rank_0.log ...), and what the launcher said in launcher.log where there is one.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parent.parent / "src")]

from gpuready.workflow.diagnose import diagnose_logs  # noqa: E402

LIB = "/venv/lib/python3.12/site-packages"
HEAD = 'Traceback (most recent call last):\n  File "/home/me/train.py", line 88, in <module>\n    main()\n'
FAULTS = {
    "cuda-oom": HEAD + f'  File "{LIB}/torch/nn/modules/linear.py", line 134, in forward\n    return F.linear(input, self.weight, self.bias)\n'
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.69 GiB. GPU 3 has a total capacity of 79.10 GiB of which 387.12 MiB is free. "
    "Including non-PyTorch memory, this process has 78.70 GiB memory in use. Of the allocated memory 77.10 GiB is allocated by PyTorch, and 481.70 MiB is reserved by PyTorch but unallocated.\n",
    "not-environment": HEAD + '  File "/home/me/data.py", line 31, in __getitem__\n    return self.rows[i]["text"]\nKeyError: \'text\'\n',
    "shm-too-small": "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n" + HEAD
    + "RuntimeError: DataLoader worker (pid 3867) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory. Please try to raise your shared memory limit.\n",
    "fork-after-cuda": HEAD + "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' start method\n",
    "host-oom-killed": "",
}  # fmt: skip
AFTER = (
    HEAD + f'  File "{LIB}/torch/distributed/distributed_c10d.py", line 2501, in all_reduce\n    work.wait()\n'
    "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.2]:4411\n",
    "[E ProcessGroupNCCL.cpp:616] [Rank {r}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=44, OpType=ALLREDUCE, NumelIn=683, NumelOut=683, Timeout(ms)=600000) ran for 600072 milliseconds before timing out.\n"
    "[E ProcessGroupNCCL.cpp:630] [Rank {r}] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data.\n"
    "terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  [Rank {r}] NCCL watchdog thread terminated with exception: [Rank {r}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=44, OpType=ALLREDUCE)\n",
    HEAD + "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/NCCLUtils.hpp:328, remote process exited or there was a network error, NCCL version 2.21.5\n"
    "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\nLast error:\nsocketProgress: Connection closed by remote peer node2<45678>\n",
    HEAD + "torch.distributed.DistStoreError: wait timeout after 300000ms, keys: /default_pg/0//cuda//0\n",
    "",
)  # fmt: skip
STYLES = (
    "[rank{r}]: ",
    "[default{l}]:",
    "{r}: ",
    "[{h}:{r}]: ",
    "(TrainWorker pid={p}, ip=10.0.0.{n}) [rank{r}]: ",
    "file",
)


def clock(second: float, skew: float) -> str:
    at = 43200 + second + skew
    return (
        f"2026-11-15 {int(at // 3600) % 24:02d}:{int(at // 60) % 60:02d}:{int(at) % 60:02d},{int(at * 1000) % 1000:03d}"
    )


def simulated(count: int, seed: int) -> Iterator[tuple[str, int, str, dict[int, list[str]], list[str], random.Random]]:
    """Cause, first failing rank, style, the lines of each rank, what the launcher says."""
    for number in range(count):
        rng = random.Random(seed + number)
        ranks, local = rng.choice((2, 4, 8, 16, 32)), rng.choice((2, 4, 8))
        first, cause = rng.randrange(ranks), rng.choice(list(FAULTS))
        skews = [rng.uniform(-300, 300) for _ in range(ranks // local + 1)]
        said: dict[int, list[str]] = {}
        for rank in range(ranks):
            skew = skews[rank // local]
            lines = [
                f"{clock(step * 2 + rng.random(), skew)} INFO trainer step {step} loss {3 - step * 0.01:.3f}"
                for step in range(rng.randrange(5, 40))
            ]
            text = FAULTS[cause] if rank == first else rng.choice(AFTER).replace("{r}", str(rank))
            said[rank] = lines + text.splitlines()
        launcher = _table(first, ranks, cause, rng) if cause == "host-oom-killed" or rng.random() < 0.5 else []
        yield cause, first, rng.choice(STYLES), said, launcher, rng


def _table(first: int, ranks: int, cause: str, rng: random.Random) -> list[str]:
    code, word = (
        (-9, "Signal 9 (SIGKILL) received by PID 100")
        if cause == "host-oom-killed"
        else (1, "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html")
    )
    lines = [
        f"W1115 12:10:02.222000 77 torch/distributed/elastic/multiprocessing/api.py:900] Sending process {100 + r} closing signal SIGTERM"
        for r in range(ranks)
        if r != first
    ]
    lines += [
        f"E1115 12:10:02.472000 77 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: {code}) local_rank: {first} (pid: {100 + first}) of binary: /venv/bin/python"
    ]
    lines += [
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "=" * 60,
        "train.py FAILED",
        "-" * 60,
        "Failures:",
        "  <NO_OTHER_FAILURES>",
        "-" * 60,
    ]
    lines += [
        "Root Cause (first observed failure):",
        "[0]:",
        "  time      : 2026-11-15_12:10:02",
        "  host      : node0",
    ]
    return [
        *lines,
        f"  rank      : {first} (local_rank: {first})",
        f"  exitcode  : {code} (pid: {100 + first})",
        "  error_file: <N/A>",
        f"  traceback : {word}",
        "=" * 60,
    ]


def recorded(
    folder: Path, seed: int, times: int
) -> Iterator[tuple[str, int, str, dict[int, list[str]], list[str], random.Random]]:
    for place in sorted(p.parent for p in folder.rglob("truth.json")):
        truth = json.loads((place / "truth.json").read_text())
        said = {
            int(p.stem.rpartition("_")[2]): p.read_text(errors="replace").splitlines() for p in place.glob("rank_*.log")
        }
        launcher = place / "launcher.log"
        last = launcher.read_text(errors="replace").splitlines() if launcher.exists() else []
        for number in range(times):
            rng = random.Random(seed + number)
            yield (
                truth.get("cause", ""),
                truth["rank"],
                rng.choice(STYLES),
                {r: _skewed(lines, rng) for r, lines in said.items()},
                last,
                rng,
            )


def induced(
    folder: Path, seed: int, times: int
) -> Iterator[tuple[str, int, str, dict[int, list[str]], list[str], random.Random]]:
    """The real runs of tests/induce/corpus that torchrun told with the local rank before every line."""
    import re

    for path in sorted(folder.glob("*.jsonl")):
        for row in map(json.loads, path.read_text(encoding="utf-8").splitlines()):
            said: dict[int, list[str]] = {}
            launcher: list[str] = []
            for line in row["log"].split("\n"):
                found = re.match(r"\[default(\d+)\]:(.*)", line)
                if found:
                    said.setdefault(int(found[1]), []).append(found[2])
                else:
                    launcher.append(line)
            if row["rank"] is None or len(said) < 2:
                continue
            for number in range(times):
                rng = random.Random(seed + number)
                moved = {rank: _skewed(lines, rng) for rank, lines in said.items()}
                yield row["cause"], row["rank"], rng.choice(STYLES), moved, launcher, rng


def _skewed(lines: list[str], rng: random.Random) -> list[str]:
    """Every clock of a rank moved by the same amount."""
    import re
    from datetime import datetime, timedelta

    by = timedelta(seconds=rng.uniform(-300, 300))

    def moved(found: re.Match[str]) -> str:
        try:
            return (datetime.strptime(found[0], "%Y-%m-%d %H:%M:%S") + by).strftime("%Y-%m-%d %H:%M:%S")
        except ValueError:
            return found[0]

    return [re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", moved, line) for line in lines]


def streams(style: str, said: dict[int, list[str]], launcher: list[str], rng: random.Random) -> list[list[bytes]]:
    """One shuffled stream, or one for each rank in any order; the launcher speaks last, as it does."""
    if style == "file":
        logs = [
            "\n".join(f"[rank{r}]: {line}" if rng.random() < 2 else line for line in lines) for r, lines in said.items()
        ]
        rng.shuffle(logs)
        return [[text.encode()] for text in [*logs, "\n".join(launcher)] if text]
    left = {rank: list(lines) for rank, lines in said.items() if lines}
    mixed = []
    while left:
        rank = rng.choice(list(left))
        for _ in range(rng.choice((1, 1, 1, 2, 5))):
            if left[rank]:
                lead = style.format(r=rank, l=rank, h=f"node{rank // 8}", p=1000 + rank, n=rank // 8)
                mixed.append(lead + left[rank].pop(0))
        if not left[rank]:
            del left[rank]
    return [["\n".join([*mixed, *launcher]).encode()]]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", nargs="?", help="recorded runs, or a corpus of tests/induce (*.jsonl)")
    parser.add_argument("--runs", type=int, default=240)
    parser.add_argument("--times", type=int, default=5, help="shuffles of each recorded run")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-v", action="store_true")
    parser.add_argument("-o", help="write the result as JSON")
    args = parser.parse_args()
    if args.folder and list(Path(args.folder).glob("*.jsonl")):
        runs = induced(Path(args.folder), args.seed, args.times)
    elif args.folder:
        runs = recorded(Path(args.folder), args.seed, args.times)
    else:
        runs = simulated(args.runs, args.seed)
    total = right = causes = 0
    for cause, first, style, said, launcher, rng in runs:
        found = diagnose_logs(streams(style, said, launcher, rng), look=False)
        total, right, causes = total + 1, right + (found.rank == first), causes + (found.cause == cause)
        if args.v and (found.rank != first or found.cause != cause):
            print(
                f"{cause} rank {first} of {len(said)} {style!r}: got {found.cause or found.verdict} rank {found.rank}"
            )
    result = {
        "runs": total,
        "first failing rank right": round(right / max(total, 1), 4),
        "cause right": round(causes / max(total, 1), 4),
    }
    print(json.dumps(result))
    if args.o:
        Path(args.o).write_text(json.dumps(result, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
