"""The logs of a run, one for each rank: whole lines with secrets already removed by the ledger."""

import errno
import os
from contextlib import suppress
from typing import IO

from gpuready.system import private_files

EXITS = "gpuready"
"""The log of how each rank ended."""
RECORD = "run.json"
"""The record of the run."""


class RankLogs:
    """DIR/rank-N.log, and DIR/engine.log for the engine's own output. A log that cannot be written is lost; the run is not.

    With ``new_run`` a log of an earlier run is kept as rank-N.log.1: its lines would be taken for this run's.
    """

    def __init__(self, folder: str, new_run: bool = False):
        self.folder, self.new_run, self.lost = folder, new_run, ""
        private_files.refuse_links_below_here(folder)
        os.makedirs(folder, exist_ok=True)
        for name in (f"{EXITS}.log", RECORD) if new_run else ():
            private_files.set_file_aside(os.path.join(folder, name))
        self._files: dict[str, IO[str]] = {}
        self.paths = [os.path.join(folder, f"{EXITS}.log")]  # of this run: others in the folder may be older

    def write_lines(self, name: str, lines: list[str]) -> str:
        """Write whole lines; return why logs are lost, the first time that one cannot be written."""
        try:
            file = self._files.get(name) or self._open_file(name)
            file.write("".join(line + "\n" for line in lines))
            file.flush()
            if not self.lost and not os.fstat(file.fileno()).st_nlink:
                raise FileNotFoundError(errno.ENOENT, "they were deleted")
        except (OSError, ValueError) as error:
            if not self.lost:
                reason = getattr(error, "strerror", None) or str(error)
                self.lost = f"the logs in {self.folder} are incomplete from here on: {reason}"
                return self.lost
        return ""

    def _open_file(self, name: str) -> IO[str]:
        path = os.path.join(self.folder, f"{name}.log")
        if self.new_run:
            private_files.set_file_aside(path)
        # Kept open: opening it for each line would cost more than the ranks' writing.
        fd = private_files.open_to_append(path)
        self._files[name] = file = open(fd, "a", encoding="utf-8", errors="surrogateescape")  # noqa: SIM115
        self.paths.append(path)
        return file

    def close(self) -> None:
        for file in self._files.values():
            with suppress(OSError):
                file.close()
        self._files.clear()
