"""The journal of a run: one answer a line, so that a restarted controller asks no node twice."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

from gpuready.model import validation
from gpuready.model.fleet import NodeAnswer
from gpuready.system import durable_files, redact_text
from gpuready.system.file_contents import read_text_file

NAME = "answers.jsonl"
MAX_JOURNAL_BYTES = 4 << 30
MAX_UNWRITTEN = 256
"""Answers that may be lost in a crash, unless a second has passed: each disk write is expensive."""


class AnswerJournal:
    """Answers appended to a file in the run's folder; a truncated last line is ignored when reading."""

    def __init__(self, folder: str):
        durable_files.make_folder(folder, 0o700)
        self.path, self.clock = f"{folder}/{NAME}", time.monotonic
        self._unwritten: list[str] = []
        self._written = self.clock()

    def add_answer(self, answer: NodeAnswer, at: float) -> None:
        self._unwritten.append(redact_text(json.dumps({"at": round(at, 2)} | answer.to_json(), separators=(",", ":"))))
        if len(self._unwritten) >= MAX_UNWRITTEN or self.clock() - self._written > 1.0:
            self.flush_to_disk()

    def flush_to_disk(self) -> None:
        if self._unwritten:
            durable_files.append_line(self.path, "\n".join(self._unwritten))
        self._unwritten, self._written = [], self.clock()

    def read_entries(self) -> Iterator[tuple[NodeAnswer, float]]:
        """Yield every complete line in order. An unreadable line was cut off by a crash; that node is asked again."""
        for line in (read_text_file(self.path, MAX_JOURNAL_BYTES) or "").split("\n"):
            try:
                entry = json.loads(line)
                yield validation.parse_record(NodeAnswer, entry), float(entry["at"])
            except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
                continue
