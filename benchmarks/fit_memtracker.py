"""torch's own MemTracker on the cases of fit_rivals.py: every line of stdin is a job and a config, every line out a peak.

It runs in an interpreter with torch and transformers, under FakeTensorMode on the CPU: fake tensors of a GPU need a build of
torch that has one. The step is that of fit_play.py, with its optimizer.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import fit_play
import torch
from fit_measure import DEFAULTS
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed._tools.mem_tracker import MemTracker


class Meter:
    """MemTracker wants to be told where a step ends."""

    def __init__(self, tracker: MemTracker) -> None:
        self.tracker = tracker

    def mark(self, phase: str, counts: bool = True) -> None:
        if phase.startswith("zero"):
            self.tracker.reset_mod_stats()


def peak(reported: dict[str, Any]) -> int:
    """The most that lived at once, in bytes."""
    job = argparse.Namespace(**(DEFAULTS | reported["job"]))
    with FakeTensorMode(allow_non_fake_inputs=True):
        model, other = fit_play.ready(job, reported["config"], "cpu")
        tracker = MemTracker()
        tracker.track_external(model)
        with tracker:
            fit_play.train(job, model, other, model.config.vocab_size, "cpu", Meter(tracker))
        found = tracker.get_tracker_snapshot("peak")
    return max(int(sizes["Total"]) for sizes in found.values())


def main() -> None:
    fit_play.STEPS = 2
    torch.set_num_threads(1)
    for line in sys.stdin:
        begun = time.process_time()
        try:
            said: dict[str, Any] = {"peak": peak(json.loads(line))}
        except Exception as wrong:
            said = {"wrong": f"{type(wrong).__name__}: {str(wrong).strip().partition(chr(10))[0][:160]}"}
        print(json.dumps(said | {"seconds": round(time.process_time() - begun, 2)}), flush=True)


if __name__ == "__main__":
    main()
