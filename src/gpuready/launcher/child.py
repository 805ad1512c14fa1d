"""A rank as its agent sees it: pipes, last state, and signals that may arrive too late."""

from __future__ import annotations

import os
import select
import time

from gpuready.launcher import seat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

PIECE = 1 << 16


class Rank:
    """One child process with its pipes."""

    def __init__(self, number: int, pid: int, pipes: seat.Pipes):
        self.number, self.pid, self.pipes = number, pid, pipes
        self.beaten, self.done, self.code = 0.0, False, None  # type: float, bool, int | None
        self.open = {pipes.out: self._out, pipes.beat: self._beat, pipes.stack: self._stack}
        self.said: list[dict[str, Any]] = []
        self.cpu: float = 0.0

    def read(self, fd: int) -> bool:
        """Read what is available; False at the end of the pipe."""
        try:
            data = os.read(fd, PIECE)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        if not data:
            self.open.pop(fd, None)
            os.close(fd)
            return False
        self.open[fd](data)
        return True

    def _out(self, data: bytes) -> None:
        self.said.append({"t": "out", "r": self.number, "d": data.decode("utf-8", "surrogateescape")})

    def _beat(self, data: bytes) -> None:
        self.beaten, self.done = time.monotonic(), self.done or seat.DONE in data
        if seat.LEAVING in data:
            self.said.append({"t": "leaving", "r": self.number})

    def _stack(self, data: bytes) -> None:
        self.said.append({"t": "stack", "r": self.number, "d": data.decode("utf-8", "replace")})


def own_group(pid: int) -> None:
    try:
        os.setpgid(pid, pid)
    except OSError:
        return  # it has done so itself, or has ended


def signal_to(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        return


def ready(fd: int, deadline: float) -> bool:
    return bool(select.select([fd], [], [], max(0.0, min(0.05, deadline - time.monotonic())))[0])


def drained(fd: int) -> None:
    try:
        while os.read(fd, 4096):
            pass
    except OSError:
        return
