"""Write what happens in a run as one JSON line each, for alerts: progress, standstills, failures, restarts."""

import json
import time
from contextlib import suppress
from typing import IO, Any

from gpuready.launcher.rank_ledger import RankLedger
from gpuready.launcher.restart import highest_step
from gpuready.launcher.supervisor import RunReporter
from gpuready.model.run import RunNote
from gpuready.system import private_files

PROGRESS_SECONDS = 10.0


def open_file(path: str) -> IO[str]:
    return open(private_files.open_to_append(path), "a", encoding="utf-8")


class EventReporter:
    """Passes everything on to another reporter; a file that cannot be written any more is lost, not the run."""

    def __init__(self, reporter: RunReporter, file: IO[str]):
        self.reporter, self.file = reporter, file
        self.step, self.told_at = -1.0, float("-inf")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.reporter, name)

    def write_note(self, note: RunNote) -> None:
        self._write_event(note.kind, says=note.says, rank=note.rank, host=note.host, code=note.code)
        self.reporter.write_note(note)

    def show_progress(self, ledger: RankLedger, now: float) -> None:
        lines = [line for state in ledger.ranks.values() for line in list(state.tail)[-3:]]
        step = max(map(highest_step, lines), default=-1.0)
        if step > self.step and now - self.told_at >= PROGRESS_SECONDS:
            self.step, self.told_at = step, now
            self._write_event("progress", step=step)
        self.reporter.show_progress(ledger, now)

    def _write_event(self, event: str, **fields: Any) -> None:
        known = {name: value for name, value in fields.items() if value not in (None, "")}
        with suppress(OSError, ValueError):
            self.file.write(json.dumps({"at": round(time.time(), 3), "event": event, **known}) + "\n")
            self.file.flush()
