"""The journal of an environment: one line per step, on disk before the next step begins."""

from __future__ import annotations

import os

from gpuready.system import durable, redact

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

NAME = "journal.jsonl"


class Journal:
    """Append-only log of what was done to an environment."""

    def __init__(self, folder: str, clock: Callable[[], float]):
        self.path, self.clock, self.pid = f"{folder}/{NAME}", clock, os.getpid()

    def note(self, step: str, **more: Any) -> None:
        """Write one step. OSError if it cannot be written: then the step must not be taken."""
        import json

        line = {"at": round(self.clock(), 3), "pid": self.pid, "step": step} | more
        durable.append(self.path, redact(json.dumps(line, default=str)))

    def try_note(self, step: str, **more: Any) -> None:
        """Write one step after a failure, where a full disk must not hide the cause."""
        try:
            self.note(step, **more)
        except OSError:
            return


def entries(folder: str) -> list[dict[str, Any]]:
    """Return every intact line of a journal; lines torn by a crash are skipped."""
    import json

    try:
        with open(f"{folder}/{NAME}", encoding="utf-8", errors="replace") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(entry, dict) and "step" in entry:
            found.append(entry)
    return found
