"""The logs of a run, one for each rank: whole lines with secrets already removed by the ledger."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO


class RankLogs:
    """DIR/rank-N.log, and DIR/engine.log for the engine's own output."""

    def __init__(self, folder: str):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)
        self._files: dict[str, IO[str]] = {}

    def write_line(self, name: str, line: str) -> None:
        if name not in self._files:
            path = os.path.join(self.folder, f"{name}.log")
            # Kept open: opening it for each line would cost more than the ranks' writing.
            self._files[name] = open(path, "a", encoding="utf-8", errors="surrogateescape", buffering=1)  # noqa: SIM115
        self._files[name].write(line + "\n")

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()
