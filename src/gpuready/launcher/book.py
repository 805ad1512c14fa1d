"""The logs of a run, one for each rank: whole lines as they came, without their secrets (the ledger has taken them out)."""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO


class Book:
    """DIR/rank-N.log, and DIR/engine.log for what the engine itself says."""

    def __init__(self, folder: str):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)
        self._files: dict[str, IO[str]] = {}

    def write(self, name: str, line: str) -> None:
        """Keep one line."""
        if name not in self._files:
            path = os.path.join(self.folder, f"{name}.log")
            # Kept open: a line at a time would cost more than the ranks write in it.
            self._files[name] = open(path, "a", encoding="utf-8", errors="surrogateescape", buffering=1)  # noqa: SIM115
        self._files[name].write(line + "\n")

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()
