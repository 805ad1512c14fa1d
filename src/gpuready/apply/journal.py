"""The journal of an environment: one line per step, on disk before the next step begins."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

from gpuready.system import durable_files, redact_text

JOURNAL_FILE = "journal.jsonl"


class InstallJournal:
    """Append-only log of what was done to an environment."""

    def __init__(self, folder: str, clock: Callable[[], float]):
        self.path, self.clock, self.pid = f"{folder}/{JOURNAL_FILE}", clock, os.getpid()

    def record_step(self, step: str, **more: Any) -> None:
        """Write one step. OSError if it cannot be written: then the step must not be taken."""
        line = {"at": round(self.clock(), 3), "pid": self.pid, "step": step} | more
        durable_files.append_line(self.path, redact_text(json.dumps(line, default=str)))

    def try_record_step(self, step: str, **more: Any) -> None:
        """Write one step after a failure, where a full disk must not hide the cause."""
        try:
            self.record_step(step, **more)
        except OSError:
            return
