"""A rank as its agent sees it: pipes, last state, and signals that may arrive too late."""

from __future__ import annotations

import os
import select
import signal
import socket
import time
from typing import Any

from gpuready.launcher import rank_main
from gpuready.launcher.rank_watch import RankWatch

READ_SIZE = 1 << 18
PASSED_SIGNALS = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU)
"""Signals that reach the ranks as they are: for a requeue, a checkpoint, the end of a time limit."""


class RankProcess:
    """One child process with its pipes."""

    def __init__(self, number: int, pid: int, pipes: rank_main.RankPipes):
        self.number, self.pid, self.pipes = number, pid, pipes
        self.last_beat, self.done, self.code = 0.0, False, None  # type: float, bool, int | None
        self.watch: RankWatch | None = None
        self.handlers = {pipes.out: self._handle_output, pipes.beat: self._handle_beat, pipes.stack: self._handle_stack}
        self.messages: list[dict[str, Any]] = []

    def read_pipe(self, fd: int) -> bool:
        """Read what is available; False at the end of the pipe."""
        try:
            data = os.read(fd, READ_SIZE)
        except BlockingIOError:
            return True
        except OSError:
            data = b""
        if not data:
            self.handlers.pop(fd, None)
            os.close(fd)
            if fd == self.pipes.beat:  # the rank closed it, or became another program: it beats no more
                self.last_beat = 0.0
            return False
        self.handlers[fd](data)
        return True

    def _handle_output(self, data: bytes) -> None:
        self.messages.append({"t": "out", "r": self.number, "d": data.decode("utf-8", "surrogateescape")})

    def _handle_beat(self, data: bytes) -> None:
        self.last_beat, self.done = time.monotonic(), self.done or rank_main.DONE in data
        if rank_main.LEAVING in data or rank_main.DONE in data:
            self.messages.append({"t": "leaving", "r": self.number, "done": self.done})

    def _handle_stack(self, data: bytes) -> None:
        self.messages.append({"t": "stack", "r": self.number, "d": data.decode("utf-8", "replace").splitlines()})

    def ask_for_stacks(self) -> None:
        """Ask the rank itself, where its memory may not be read."""
        try:
            os.write(self.pipes.ask, b"?")
        except OSError:
            return


def own_hostname() -> str:
    return os.environ.get("GPUREADY_HOSTNAME") or socket.gethostname()


def find_free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("", 0))
        return int(probe.getsockname()[1])


def set_own_group(pid: int) -> None:
    try:
        os.setpgid(pid, pid)
    except OSError:
        return  # it has done so itself, or has ended


def send_signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except OSError:
        return


def is_readable(fd: int, deadline: float) -> bool:
    return bool(select.select([fd], [], [], max(0.0, min(0.05, deadline - time.monotonic())))[0])


def drain_pipe(fd: int) -> None:
    try:
        while os.read(fd, 4096):
            pass
    except OSError:
        return
