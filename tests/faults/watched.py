"""Running jobs that break, with real gloo ranks: each case of watched_cases.toml under `gpuready run`, deaths under torchrun too.

python -m tests.faults.watched [--only L01,L4] [--src DIR] [--torchrun] [--out FILE.md]

A death must be blamed on the right rank, with the right words and code; a standstill must be named while it lasts; a healthy run must
not be harmed. ``--src`` runs another copy of gpuready, to compare.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from tests import target_environment
from tests.faults import watched_acts
from tests.launcher.stage import Ran, Stage
from tests.ranks import free_port
from tests.running import SRC

HERE = Path(__file__).parent
HANG_S = 60.0
"""By then a standstill must be named."""
ENDED_S = 240.0
"""By then a job must have ended: on a busy machine its start alone takes a minute."""

REDUCE = """
import os, signal, subprocess, sys, threading, time
import torch
import torch.distributed as dist
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
dist.init_process_group("gloo")
def steps(count):
    for number in range(count):
        dist.all_reduce(torch.ones(8)); time.sleep(0.002)
        if number % 50 == 0 and rank == 0: print("step", number, flush=True)
"""
Case = dict[str, Any]


class Seen(NamedTuple):
    """What one run of a case showed, and what was wrong with it."""

    wrong: str
    first: str
    text: str
    seconds: float


def cases(only: str = "") -> list[Case]:
    every: list[Case] = tomllib.loads((HERE / "watched_cases.toml").read_text())["case"]
    wanted = tuple(word for word in only.split(",") if word)
    return [case for case in every if not wanted or case["id"].startswith(wanted)]


class Runner:
    """Runs cases with one copy of gpuready."""

    def __init__(self, src: str = str(SRC)):
        self.src, self.python = src, target_environment.python()

    def run(self, case: Case) -> Seen:
        with tempfile.TemporaryDirectory(prefix="wt-") as folder:
            stage = Stage(Path(folder), self.python)
            try:
                return self._judge(case, *self._play(case, stage))
            except subprocess.TimeoutExpired:
                return Seen("did not end", "", "", self._within(case))
            except AssertionError as error:
                return Seen(str(error)[:300], "", "", 0.0)

    def _within(self, case: Case) -> float:
        return float(case.get("within", HANG_S if case["kind"] == "hang" else ENDED_S))

    def _play(self, case: Case, stage: Stage) -> tuple[Ran, dict[str, Any]]:
        words = self._script(case, stage)
        if case.get("prelude") == "two nodes":
            return self._two_nodes(case, stage, words), {}
        flags = ["--nproc", str(case.get("nproc", 3)), *case.get("flags", ())]
        if case["kind"] == "hang":
            flags.append("--json")
        act = watched_acts.Act(case.get("act", ""), stage)
        act.prepare()
        began = time.monotonic()
        process = stage.start(*flags, "--", *words, PYTHONPATH=self.src)
        act.perform(process)
        if case["kind"] == "hang":
            return self._wait_for_note(case, stage, process)
        ran = stage.ended(process, self._within(case))
        return Ran(ran.code, ran.out + act.describe_files(), ran.err, time.monotonic() - began), {}

    def _script(self, case: Case, stage: Stage) -> list[str]:
        if case.get("prelude") == "shell":
            return ["./" + stage.script("#!/bin/sh\n" + case["script"], "job.sh", 0o755)]
        return [stage.script(case.get("before", "") + REDUCE + case["script"])]

    def _two_nodes(self, case: Case, stage: Stage, words: list[str]) -> Ran:
        """Two gpuready side by side; what the first node says is judged, and the second must agree."""
        port, runs = free_port(), []
        for node in (0, 1):
            flags = ["--nnodes", "2", "--node-rank", str(node), "--master", f"127.0.0.1:{port}", "--nproc", "2"]
            flags += ["--no-preflight", "--log-dir", f"logs-{node}"]
            runs.append(stage.start(*flags, "--", *words, PYTHONPATH=self.src, GPUREADY_HOSTNAME=f"node{node}"))
        began, texts = time.monotonic(), []
        try:
            texts = [process.communicate(timeout=self._within(case)) for process in runs]
        finally:
            for process in runs:
                if process.poll() is None:
                    process.kill()
                    process.wait()
        blamed = {_first_of(out.decode()) for out, _ in texts}
        out, err = (b"\n".join(parts).decode() for parts in zip(*texts, strict=True))
        if len(blamed) > 1:
            err += f"\nthe nodes disagree: {sorted(blamed)}"
        code = runs[0].returncode if len(blamed) == 1 else -99
        return Ran(code, out, err, time.monotonic() - began)

    def _wait_for_note(self, case: Case, stage: Stage, process: subprocess.Popen[bytes]) -> tuple[Ran, dict[str, Any]]:
        """Until the words have been said; then the run is ended as by Ctrl-C, twice."""
        began, text, at = time.monotonic(), "", 0.0
        assert process.stderr is not None
        os.set_blocking(process.stderr.fileno(), False)
        while process.poll() is None and time.monotonic() - began < self._within(case):
            text += (process.stderr.read() or b"").decode()
            if not _missing_words(case, _notes(text)):
                at = time.monotonic() - began
                break
            time.sleep(0.2)
        os.set_blocking(process.stderr.fileno(), True)
        watched_acts.thaw(stage)
        for wait in (0.5, 1.0):
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
                time.sleep(wait)
        ran = stage.ended(process, 30)
        document = json.loads(ran.out) if ran.out.strip() else {}
        notes = document["attempts"][-1]["notes"] if document.get("attempts") else []
        return Ran(ran.code, "", text, at or 999.0), {"notes": notes}

    def _judge(self, case: Case, ran: Ran, more: dict[str, Any]) -> Seen:
        text = ran.out + "\n" + ran.err
        if case["kind"] == "hang":
            text = _notes(ran.err)
            accused = [n["rank"] for n in more["notes"] if str(n.get("code", "")).startswith("RUN")]
            first = str(accused[-1]) if accused else ""
            wrong = [] if accused and accused[-1] in case["first"] else [f"accused {accused}"]
        else:
            first = _first_of(ran.out)
            wrong = [] if case["kind"] == "healthy" or _right_first(case, first) else [f"blamed {first or 'nobody'}"]
            codes = case.get("code") or ([0] if case["kind"] == "healthy" else [])
            wrong += [f"exit {ran.code}"] if (codes and ran.code not in codes) or ran.code in (-99, 2) else []
        if case["kind"] == "death":  # what the ranks wrote while they ran is no answer
            text = ran.out[ran.out.find("\nfailed: ") :] if "\nfailed: " in ran.out else ran.out + ran.err
        wrong += [f"not said: {word}" for word in _missing_words(case, text)]
        wrong += [f"said: {word}" for word in case.get("never", ()) if word in text]
        return Seen("; ".join(wrong), first, " ".join(text.split())[:400], ran.seconds)

    def torchrun(self, case: Case) -> Seen:
        """Whom torchrun calls the root cause."""
        with tempfile.TemporaryDirectory(prefix="wt-") as folder:
            stage = Stage(Path(folder), self.python)
            words = self._script(case, stage)
            flags = ["--standalone", f"--nproc-per-node={case.get('nproc', 3)}"]
            flags += ["--no-python"] if case.get("prelude") == "shell" else []
            env = {**os.environ, "STAGE_MARK": stage.mark, "OMP_NUM_THREADS": "1"}
            began = time.monotonic()
            process = subprocess.Popen(
                [self.python, "-m", "torch.distributed.run", *flags, *words],
                cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                out = process.communicate(timeout=self._within(case))[0].decode("utf-8", "replace")
            except subprocess.TimeoutExpired:
                out = ""
                for pid in [process.pid, *stage.left()]:
                    _kill(pid)
                process.communicate()
            root = out.rpartition("Root Cause")[2]
            found = re.search(r"rank\s*:\s*(\d+)", root)
            first = found[1] if found else ""
            wrong = "" if _right_first(case, first) else f"blamed {first or 'nobody'}"
            return Seen(wrong, first, "", time.monotonic() - began)


def _right_first(case: Case, first: str) -> bool:
    wanted = case["first"]
    if not wanted:
        return not first
    return bool(first) and all(int(one) in wanted for one in first.split(","))


def _first_of(out: str) -> str:
    """The ranks that the header calls the first."""
    heads = re.split(r"^failed: (?=rank)", out, flags=re.M)  # a rank may quote another run
    head = " ".join(heads[-1].split())[:300] if len(heads) > 1 else ""
    both = head.partition(" failed at the same time")
    return ",".join(re.findall(r"rank (\d+)", both[0] if both[1] else head)[: 9 if both[1] else 1])


def _notes(text: str) -> str:
    """The notes of gpuready among the lines of the ranks."""
    lines = [line for line in text.splitlines() if line.startswith(("gpuready:", "        "))]
    return "\n".join(lines)


def _missing_words(case: Case, text: str) -> list[str]:
    flat = " ".join(text.split())
    return [word for word in case.get("says", ()) if not any(one in flat for one in word.split("|"))]


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return


# -- the table ------------------------------------------------------------------------------------------------


def main(argv: list[str]) -> int:
    settings: dict[str, Any] = {"--only": "", "--src": str(SRC), "--out": "", "--torchrun": False, "--jobs": "3"}
    words = list(argv)
    while words:
        word = words.pop(0)
        settings[word] = True if word == "--torchrun" else words.pop(0)
    runner, chosen = Runner(settings["--src"]), cases(settings["--only"])
    with ThreadPoolExecutor(int(settings["--jobs"])) as pool:
        results = list(pool.map(lambda case: _reported(case, runner), chosen))
        deaths = [
            case for case in chosen if case["kind"] == "death" and case.get("prelude") != "two nodes" and case["first"]
        ]
        rivals = (
            dict(zip([c["id"] for c in deaths], pool.map(runner.torchrun, deaths), strict=True))
            if settings["--torchrun"]
            else {}
        )
    text = table(chosen, results, rivals)
    print(text)
    if settings["--out"]:
        Path(settings["--out"]).write_text(text)
    return int(any(seen.wrong for seen in results))


def _reported(case: Case, runner: Runner) -> Seen:
    seen = runner.run(case)
    print(case["id"], "ok" if not seen.wrong else f"WRONG {seen.wrong}", f"{seen.seconds:.1f} s", flush=True)
    return seen


def table(chosen: list[Case], results: list[Seen], rivals: dict[str, Seen]) -> str:
    lines = ["| id | fault | expected | seen | s | result | torchrun |", "|---" * 7 + "|"]
    for case, seen in zip(chosen, results, strict=True):
        rival = rivals.get(case["id"])
        other = "" if rival is None else f"rank {rival.first}" if rival.first else "nobody"
        wanted = ", ".join([*(f"rank {r}" for r in case.get("first", ())), *case.get("says", ())])
        cells = (case["id"], case["fault"], wanted, seen.text[:160], f"{seen.seconds:.1f}", seen.wrong or "ok", other)
        lines.append("| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |")
    right = {
        kind: [not s.wrong for c, s in zip(chosen, results, strict=True) if c["kind"] == kind]
        for kind in ("death", "hang", "healthy")
    }
    blamed = [_right_first(c, s.first) for c, s in zip(chosen, results, strict=True) if c["kind"] == "death"]
    sums = [f"{kind}: {sum(ok)} of {len(ok)} as they should be" for kind, ok in right.items() if ok]
    sums.append(f"first failing rank right: {sum(blamed)} of {len(blamed)}")
    if rivals:
        sums.append(f"torchrun: {sum(not s.wrong for s in rivals.values())} of {len(rivals)}")
    return "\n".join([*lines, "", *(f"- {one}" for one in sums)]) + "\n"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
