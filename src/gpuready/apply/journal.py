"""The journal of an environment: one line for each step, on the disk before the next step begins."""

from __future__ import annotations

import os

from gpuready.system import durable, redact

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

NAME = "journal.jsonl"


class Journal:
    """What was done to an environment, in order. Nothing in it is ever changed."""

    def __init__(self, folder: str, clock: Callable[[], float]):
        self.path, self.clock, self.pid = f"{folder}/{NAME}", clock, os.getpid()

    def note(self, step: str, **more: Any) -> None:
        """One step. OSError where it cannot be written: then the step is not taken either."""
        import json

        line = {"at": round(self.clock(), 3), "pid": self.pid, "step": step} | more
        durable.append(self.path, redact(json.dumps(line, default=str)))

    def try_note(self, step: str, **more: Any) -> None:
        """The same where something has failed already, and a full disk must not hide what."""
        try:
            self.note(step, **more)
        except OSError:
            return


def entries(folder: str) -> list[dict[str, Any]]:
    """Every line of a journal that is whole; one that was torn by a crash is left out."""
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
