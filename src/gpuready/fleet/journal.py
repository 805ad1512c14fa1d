"""The journal of a run: one answer or pair a line, so that a restarted controller asks no node twice."""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

from gpuready.model import validation
from gpuready.model.fleet import NodeAnswer, NodePair
from gpuready.system import durable_files, redact_text
from gpuready.system.file_contents import read_text_file

NAME = "answers.jsonl"
Entry = TypeVar("Entry")
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
        self._append_entry({"at": round(at, 2)} | answer.to_json())
        if len(self._unwritten) >= MAX_UNWRITTEN or self.clock() - self._written > 1.0:
            self.flush_to_disk()

    def add_pair(self, pair: NodePair) -> None:
        self._append_entry({"pair": pair.to_json()})

    def _append_entry(self, entry: dict[str, Any]) -> None:
        self._unwritten.append(redact_text(json.dumps(entry, separators=(",", ":"))))

    def flush_to_disk(self) -> None:
        if self._unwritten:
            durable_files.append_line(self.path, "\n".join(self._unwritten))
        self._unwritten, self._written = [], self.clock()

    def read_entries(self) -> Iterator[tuple[NodeAnswer, float]]:
        """Yield every answer in order; a node whose line was cut off by a crash is asked again."""
        return self._parse_lines(lambda entry: (validation.parse_record(NodeAnswer, entry), float(entry["at"])))

    def read_pairs(self) -> Iterator[NodePair]:
        """Yield the pairs of all complete rounds."""
        return self._parse_lines(lambda entry: validation.parse_record(NodePair, entry["pair"]))

    def _parse_lines(self, parse: Callable[[Any], Entry]) -> Iterator[Entry]:
        """Yield what complete lines say; an unreadable one was cut off by a crash, and others say something else."""
        for line in (read_text_file(self.path, MAX_JOURNAL_BYTES) or "").split("\n"):
            with suppress(ValueError, KeyError, TypeError, OverflowError, RecursionError):
                yield parse(json.loads(line))
