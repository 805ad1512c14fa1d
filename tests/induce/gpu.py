"""Provokes failures that need an NVIDIA GPU, and records them: python -m tests.induce.gpu [OUT] [--only ID ...]

Runs with the Python that has torch for CUDA and nothing else. Each case is a process of its own with a deadline;
the whole takes at most eight minutes, and what is recorded by then is already written to OUT/gpu-corpus.jsonl.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from tests.induce import stage  # noqa: E402
from tests.induce.gpu_faults import FAULTS  # noqa: E402
from tests.induce.gpu_memory import MEMORY  # noqa: E402

LASTS = 460.0
TOGETHER = 6
CASES = (*FAULTS, *MEMORY)


class Recorder:
    """Runs cases and writes each row as soon as it is there."""

    def __init__(self, out: Path, home: Path):
        self.file = (out / "gpu-corpus.jsonl").open("a", encoding="utf-8")
        self.failed = (out / "gpu-failed.txt").open("a", encoding="utf-8")
        self.home, self.lock = home, threading.Lock()
        self.ends = time.monotonic() + LASTS
        self.recorded = self.missed = 0

    def record(self, case: stage.Provoke) -> None:
        left = self.ends - time.monotonic()
        room = stage.here()
        reason = stage.lacking(case, room) or ("no time left" if left < 10 else "")
        row = None
        started = time.monotonic()
        if not reason:
            try:
                row = stage.induce(fitted(case, room, left), room, self.home)
            except stage.NotInduced as why:
                reason = str(why)
            except Exception as why:
                reason = f"{type(why).__name__}: {why}"
        self.note(case, row, reason, time.monotonic() - started)

    def note(self, case: stage.Provoke, row: dict[str, object] | None, reason: str, took: float) -> None:
        with self.lock:
            if row:
                self.recorded += 1
                self.file.write(json.dumps(row) + "\n")
                self.file.flush()
            else:
                self.missed += 1
                self.failed.write(f"=== {case.id}: {reason}\n\n")
                self.failed.flush()
            print(f"{'ok  ' if row else 'MISS'} {case.id} ({took:.0f} s) {reason[:160]}", flush=True)


def fitted(case: stage.Provoke, room: stage.Room, left: float) -> stage.Provoke:
    """The case with this machine's way to its driver and compiler, and no more time than is left."""
    env = {"PATH": f"{room.bin}:{stage.SYSTEM_PATH}:{os.environ.get('PATH', '')}"}
    if "LD_LIBRARY_PATH" in os.environ:
        env["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
    command = case.said
    if not (room.bin / "torchrun").exists():
        command = command.replace("torchrun ", "python -m torch.distributed.run ")
    return replace(case, command=command, env={**env, **case.env}, deadline=min(case.deadline, left))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", nargs="?", default=os.environ.get("OUT", "."))
    parser.add_argument("--only", nargs="*", default=[])
    args = parser.parse_args()
    wanted = [case for case in CASES if not args.only or case.id in args.only]
    with tempfile.TemporaryDirectory(prefix="induce-", ignore_cleanup_errors=True) as home:
        recorder = Recorder(Path(args.out), Path(home))
        with ThreadPoolExecutor(TOGETHER) as pool:
            list(pool.map(recorder.record, [case for case in wanted if not case.alone]))
        for case in wanted:
            if case.alone:
                recorder.record(case)
    print(f"{recorder.recorded} recorded, {recorder.missed} missed", flush=True)
    return 0 if recorder.recorded else 1


if __name__ == "__main__":
    sys.exit(main())
