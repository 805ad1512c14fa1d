"""The journal of a run: one answer a line, so that a restarted controller asks no node twice."""

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
"""Answers that may be lost in a crash, unless a second has passed: each disk write is expensive."""


class Journal:
    """Answers appended to a file in the run's folder; a truncated last line is ignored when reading."""

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
        if self._waiting:
            durable.append(self.path, "\n".join(self._waiting))
        self._waiting, self._written = [], self.clock()

    def entries(self) -> Iterator[tuple[Answer, float]]:
        """Yield every complete line in order. An unreadable line was cut off by a crash; that node is asked again."""
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
