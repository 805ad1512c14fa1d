"""The journal of a run: every answer on a line of its own, so that a controller that died is asked nothing twice."""

from __future__ import annotations

import os

from gpuready import held
from gpuready.fleeted import Answer
from gpuready.system import durable, redact

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = "answers.jsonl"
TOGETHER = 256
"""Answers that may be lost in a crash, unless a second has passed: one write to the disk is dear."""


class Journal:
    """Answers in the folder of a run, appended; a torn line at the end is left out when they are read."""

    def __init__(self, folder: str):
        import time

        durable.folder(folder, 0o700)
        self.path, self.clock = f"{folder}/{NAME}", time.monotonic
        self._waiting: list[str] = []
        self._written = self.clock()

    def note(self, answer: Answer, at: float) -> None:
        import json

        self._waiting.append(
            redact(json.dumps({"at": round(at, 2)} | answer.to_json(), separators=(",", ":")))
        )
        if len(self._waiting) >= TOGETHER or self.clock() - self._written > 1.0:
            self.flush()

    def flush(self) -> None:
        """Put what waits on the disk."""
        if self._waiting:
            durable.append(self.path, "\n".join(self._waiting))
        self._waiting, self._written = [], self.clock()

    def entries(self) -> Iterator[tuple[Answer, float]]:
        """Every whole line, in order. What cannot be read was torn by the crash, and is asked again."""
        import json

        if not os.path.exists(self.path):
            return
        with open(self.path, encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    told = json.loads(line)
                    yield held.of(Answer, told), float(told["at"])
                except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
                    continue
