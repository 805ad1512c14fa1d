"""Does ``gpuready diagnose`` keep its answer when a labelled log is changed in ways that do not change the truth?

One JSON object a line: log, root_cause (or cause), decisive (lines that a cut must keep). Without files, the corpus of tests/induce.
A log counts where its unchanged form is answered rightly; the others are what score_logs.py measures.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tools"), str(ROOT)]

from compile_catalog import compile_pattern_table  # noqa: E402

from gpuready.logs.pattern_index import PatternIndex  # noqa: E402
from gpuready.workflow import diagnose  # noqa: E402
from gpuready.workflow.diagnose import diagnose_logs  # noqa: E402


class Case(NamedTuple):
    """A log with its truth."""

    id: str
    log: str
    cause: str
    decisive: tuple[str, ...] = ()


Mutation = Callable[[Case, random.Random, Sequence[Case]], str]

INFO_LINES = (
    "2026-11-16 12:00:03,114 INFO trainer: uploading the logs of this run\n",
    "INFO: all notifications were sent\n",
    "[2026-11-16 12:00:03,114][trainer][INFO] - output folder is /data/out/run7\n",
    "11/16/2026 12:00:03 - INFO - trainer - the configuration was written to config.yaml\n",
)


def append_info(case: Case, rng: random.Random, others: Sequence[Case]) -> str:
    return _end_line(case.log) + rng.choice(INFO_LINES)


def make_progress(rng: random.Random) -> str:
    step, loss = rng.randrange(100, 900), rng.uniform(1, 3)
    return rng.choice(
        (
            f"step {step}/1000 loss {loss:.4f} lr 1.2e-05\n",
            f"{{'loss': {loss:.4f}, 'grad_norm': 0.71, 'learning_rate': 1.2e-05, 'epoch': 0.{step}}}\n",
            f" {step // 10}%|{'#' * (step // 100)}{' ' * (10 - step // 100)}| {step}/1000 [12:40<09:11,  1.07it/s]\n",
            f" iteration {step:8d}/    1000 | consumed samples: {step * 64} | lm loss: {loss:.6E} | grad norm: 0.731 |\n",
        )
    )


def prepend_progress(case: Case, rng: random.Random, others: Sequence[Case]) -> str:
    return make_progress(rng) + case.log


def append_progress(case: Case, rng: random.Random, others: Sequence[Case]) -> str:
    return _end_line(case.log) + make_progress(rng)


WATCHDOGS = (
    "[rank{0}]:[E1116 12:31:33.467642512 ProcessGroupNCCL.cpp:616] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=44,"
    " OpType=ALLREDUCE, NumelIn=683, NumelOut=683, Timeout(ms)=600000) ran for 600072 milliseconds before timing out.\n"
)


def put_behind_training(case: Case, rng: random.Random, others: Sequence[Case]) -> str:
    """2,500 lines of training before it, and after a failure the watchdogs of three other ranks."""
    before = "".join(make_progress(rng) for _ in range(2500))
    if case.cause == "healthy":
        return before + case.log
    return before + _end_line(case.log) + "".join(WATCHDOGS.format(rank) for rank in (5, 6, 7))


def _end_line(text: str) -> str:
    return text if text.endswith("\n") else text + "\n"


# -- prefixes ---------------------------------------------------------------------------------------------


def _clock(number: int) -> str:
    at = 43200 + number // 3
    return f"{at // 3600:02d}:{at // 60 % 60:02d}:{at % 60:02d}"


PREFIXES: dict[str, Callable[[int], str]] = {
    "iso-time": lambda n: f"2026-11-16 {_clock(n)},{n % 1000:03d} ",
    "kubectl-time": lambda n: f"2026-11-16T{_clock(n)}.{n % 1000:03d}456789Z ",
    "us-time": lambda n: f"[11/16/2026 {_clock(n)}] ",
    "level": lambda n: f"2026-11-16 {_clock(n)} | INFO     | launcher.relay:forward:88 - ",
    "rank": lambda n: "[rank3]: ",
    "bracket": lambda n: "[3]: ",
    "task": lambda n: "0: ",
    "host": lambda n: "gpu-node-07: ",
    "pod": lambda n: "[pod/trainer-7d9f8c6b5-x2lqp/pytorch] ",
    "pid": lambda n: f"{_clock(n)} [pid 48121] ",
    "ray": lambda n: "(TrainWorker pid=48121, ip=10.0.0.7) ",
    "journald": lambda n: f"Nov 16 {_clock(n)} node07 python[48121]: ",
    "compose": lambda n: "trainer-1  | ",
}


def add_prefix(kind: str) -> Mutation:
    def mutate_log(case: Case, rng: random.Random, others: Sequence[Case]) -> str:
        return "".join(f"{PREFIXES[kind](n)}{line}\n" for n, line in enumerate(case.log.splitlines()))

    return mutate_log


def wrap_in_json(case: Case, rng: random.Random, others: Sequence[Case]) -> str:
    docker = rng.random() < 0.5
    lines = []
    for n, line in enumerate(case.log.splitlines()):
        when = f"2026-11-16T{_clock(n)}.114Z"
        row = (
            {"log": line + "\n", "stream": "stderr", "time": when}
            if docker
            else {"timestamp": when, "level": "INFO", "logger": "relay", "message": line}
        )
        lines.append(json.dumps(row))
    return "\n".join(lines) + "\n"


# -- form ------------------------------------------------------------------------------------------------


def wrap_at_80(case: Case, rng: random.Random, others: Sequence[Case]) -> str:
    return "".join(
        f"{line[at : at + 80]}\n" for line in case.log.splitlines() for at in range(0, max(len(line), 1), 80)
    )


def add_ansi(case: Case, rng: random.Random, others: Sequence[Case]) -> str:
    colour = lambda text: f"\x1b[{rng.randrange(31, 37)}m{text}\x1b[0m"  # noqa: E731
    words = (
        re.sub(r"\S+", lambda m: colour(m[0]) if rng.random() < 0.3 else m[0], line) for line in case.log.split("\n")
    )
    return "\n".join(words)


def use_crlf(case: Case, rng: random.Random, others: Sequence[Case]) -> str:
    return case.log.replace("\r\n", "\n").replace("\n", "\r\n")


def quote_lines(case: Case, rng: random.Random, others: Sequence[Case]) -> str:
    return "".join(f"> {line}\n" for line in case.log.splitlines())


def _decisive_span(case: Case) -> tuple[list[str], int, int]:
    lines = case.log.splitlines(keepends=True)
    wanted = [" ".join(text.split()) for text in case.decisive]
    folded = [" ".join(line.split()) for line in lines]
    at = [i for i, line in enumerate(folded) if any(line and (line in text or text in line) for text in wanted)]
    return lines, min(at, default=0), max(at, default=len(lines) - 1)


def cut_head(case: Case, rng: random.Random, others: Sequence[Case]) -> str:
    """Drop half of what precedes the exception of the first decisive line."""
    lines, first, _ = _decisive_span(case)
    heads = [i for i in range(max(first - 80, 0), first + 1) if "Traceback (most recent" in lines[i]]
    first = heads[0] if heads else first
    return "".join(lines[first // 2 :])


def cut_tail(case: Case, rng: random.Random, others: Sequence[Case]) -> str:
    """Drop half of what follows the last decisive line."""
    lines, _, last = _decisive_span(case)
    return "".join(lines[: last + 1 + (len(lines) - last) // 2])


SEPARATORS = (
    "user@gpu-node-07:~/job$ python train.py --config run.yaml\n",
    "(venv) [user@login01 job]$ torchrun --nproc-per-node 2 train.py\n",
    "+ python train.py --config run.yaml\n",
    "===== run 2 started at Mon Nov 16 12:40:11 UTC 2026 =====\n",
    "root@9f8e7d6c5b4a:/workspace# accelerate launch train.py\n",
    "slurmstepd: info: Job 48121 requeued, attempt 2\n=== job 48121 starting on gpu-node-07 ===\n",
)


def concatenate_runs(case: Case, rng: random.Random, others: Sequence[Case]) -> str:
    before = rng.choice([other for other in others if other.cause != case.cause])
    return _end_line(before.log) + rng.choice(SEPARATORS) + case.log


def interleave_ranks(case: Case, rng: random.Random, others: Sequence[Case]) -> str:
    """Another rank at work between the lines of this one."""
    lines = case.log.splitlines()
    ranked = re.search(r"\[(rank ?|default)\d+\]", case.log)
    prefix, other = ("", 97) if ranked else ("[rank1]: ", 0)
    result = []
    for n, line in enumerate(lines):
        result.append(f"{prefix}{line}")
        if rng.random() < 0.25 and n < len(lines) - 1:
            result.append(f"[rank{other}]: batch of {n} samples was sent to the queue")
    return "\n".join(result) + "\n"


def change_paths(case: Case, rng: random.Random, others: Sequence[Case]) -> str:
    text = re.sub(r"/home/\w+/|/srv/job/|/root/|/mnt/\w+/", "/data/people/kim/job/", case.log)
    text = re.sub(r"/(?:usr/local|opt/conda|home/user/venv)/lib/python3", "/env/kim/lib/python3", text)
    return re.sub(r"C:\\Users\\\w+\\", lambda m: "D:\\people\\kim\\", text)


def change_numbers(case: Case, rng: random.Random, others: Sequence[Case]) -> str:
    """Change numbers that mean nothing: lines of files, addresses, processes, the clock's minutes."""
    new = lambda low, high: str(rng.randrange(low, high))  # noqa: E731
    text = re.sub(r"(?<=, line )\d+", lambda m: new(3, 2000), case.log)
    text = re.sub(r"0x[0-9a-f]{6,16}\b", lambda m: f"0x{rng.randrange(1 << 40):x}", text)
    text = re.sub(r"(?<=\.cpp:)\d+|(?<=\.hpp:)\d+", lambda m: new(40, 3000), text)
    return re.sub(r"(?<= \d\d:)\d\d(?=:\d\d[.,]\d)", "37", text)


MUTATIONS: dict[str, Mutation] = {
    "info-after": append_info,
    "progress-before": prepend_progress,
    "progress-after": append_progress,
    "behind-training": put_behind_training,
    **{f"prefix-{kind}": add_prefix(kind) for kind in PREFIXES},
    "json-lines": wrap_in_json,
    "wrapped": wrap_at_80,
    "ansi": add_ansi,
    "crlf": use_crlf,
    "quoted": quote_lines,
    "head-cut": cut_head,
    "tail-cut": cut_tail,
    "two-runs": concatenate_runs,
    "ranks-interleaved": interleave_ranks,
    "paths": change_paths,
    "numbers": change_numbers,
}


# -- score -----------------------------------------------------------------------------------------------


def answer_log(log: str) -> str:
    found = diagnose_logs([[log.encode()]], look=False)
    return found.cause or found.verdict


def mutate_cases(
    cases: Sequence[Case], seed: int = 1, only: Sequence[str] = (), sample: float = 1.0
) -> Iterator[tuple[str, Case, str]]:
    """Every mutation of every case, seeded by both names: name, case, log."""
    for name, mutate in MUTATIONS.items():
        for case in cases:
            rng = random.Random(f"{seed} {name} {case.id}")
            if (not only or name in only) and rng.random() < sample:
                yield name, case, mutate(case, rng, cases)


def read_cases(files: Sequence[str]) -> list[Case]:
    if not files:
        from tests.induce import corpus

        return [Case(case.id, case.log, case.cause, tuple(case.decisive)) for case in corpus.load()]
    rows = [
        json.loads(line)
        for name in files
        for line in Path(name).read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]
    return [Case(r["id"], r["log"], r.get("root_cause") or r["cause"], tuple(r.get("decisive") or ())) for r in rows]


def score_mutations(
    cases: Sequence[Case], seed: int, only: Sequence[str], sample: float, show: bool
) -> dict[str, object]:
    kept: dict[str, list[bool]] = {}
    healthy = 0
    for name, case, log in mutate_cases(cases, seed, only, sample):
        got = answer_log(log)
        kept.setdefault(name, []).append(got == case.cause)
        healthy += got == "healthy" != case.cause
        if show and got != case.cause:
            print(f"{name:20} {case.id:40} {case.cause} -> {got}", flush=True)
    total = [good for results in kept.values() for good in results]
    return {
        "logs": len(cases),
        "mutated": len(total),
        "kept": round(sum(total) / max(len(total), 1), 4),
        "failures called healthy": healthy,
        "by mutation": {name: round(sum(results) / len(results), 4) for name, results in kept.items()},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", nargs="*", help="files of labelled logs, JSON lines")
    parser.add_argument("-v", action="store_true", help="show every answer that changed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append", default=[], help="a mutation by name; may be repeated")
    parser.add_argument("--sample", type=float, default=1.0, help="share of the logs for each mutation")
    parser.add_argument("--out", help="write the score to this file, as JSON")
    args = parser.parse_args()
    index = PatternIndex(compile_pattern_table())  # the patterns as they are written now
    diagnose.load_pattern_table = lambda: index
    cases = [case for case in read_cases(args.file) if answer_log(case.log) == case.cause]
    score = score_mutations(cases, args.seed, args.only, args.sample, args.v)
    text = json.dumps(score, indent=1)
    print(text)
    if args.out:
        Path(args.out).write_text(text + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
