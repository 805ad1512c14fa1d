"""Programs running in the background: each in its own session and folder, with a deadline.

Output is read continuously; only its beginning and end are kept. When a program is over, nothing of it keeps running.
"""

from __future__ import annotations

import os
import select
import time

from gpuready.system.process import termination

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

KEPT_BYTES = 64 << 10
"""Bytes of output kept at the beginning, and as many at the end."""


KILL_WAIT_S = 10.0
"""Seconds a killed process may take to exit: a driver first releases a GPU full of memory."""


class BackgroundProcess:
    """One program from start to end."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: str, deadline: float):
        import subprocess

        self.started_at = time.monotonic()
        self.ends_at = self.started_at + deadline
        self.seconds, self.exit, self.end = 0.0, None, ""  # type: float, int | None, str
        self.head, self.tail, self.size = bytearray(), bytearray(), 0
        self.has_ended = False
        read, write = termination.make_pipe()
        os.set_blocking(read, False)
        self.fd = read
        try:
            self._popen = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=write,
                stderr=write,
                cwd=cwd,
                env=dict(env),
                start_new_session=True,
                close_fds=True,
            )
        except (OSError, ValueError) as error:
            self._close_pipe()
            self.has_ended, self.end = True, f"cannot execute: {getattr(error, 'strerror', None) or error}"
        finally:
            os.close(write)
        self.pid = 0 if self.has_ended else self._popen.pid

    def read_output(self) -> None:
        """Read available output without waiting; at most a few MiB, so that others get their turn."""
        for _ in range(64):
            try:
                part = os.read(self.fd, 1 << 16)
            except BlockingIOError:
                return
            if not part:
                self._close_pipe()
                return
            self._keep_output(part)

    def _keep_output(self, part: bytes) -> None:
        self.size += len(part)
        room = KEPT_BYTES - len(self.head)
        if room > 0:
            self.head += part[:room]
            part = part[room:]
        self.tail += part
        if len(self.tail) > 2 * KEPT_BYTES:
            del self.tail[:-KEPT_BYTES]

    def check_ended(self) -> bool:
        """Whether it is over: by itself, or by its deadline."""
        if self.has_ended:
            return True
        if termination.has_ended(self.pid):
            return self.stop_process("")
        return self.stop_process("deadline") if time.monotonic() >= self.ends_at else False

    def stop_process(self, reason: str) -> bool:
        """End it and everything it started."""
        if self.has_ended:
            return True
        self.has_ended = True
        self.seconds = time.monotonic() - self.started_at
        status, stuck = termination.kill_and_collect(self.pid, KILL_WAIT_S)
        code, end_text = (None, stuck) if status is None else termination.decode_wait_status(status)
        self._popen.returncode = 0 if code is None else code  # already collected here, not by subprocess
        self.exit, self.end = (None, stuck or reason) if reason else (code, end_text)
        if self.fd >= 0:
            self.read_output()
            self._close_pipe()
        return True

    def _close_pipe(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def output_text(self) -> str:
        """The output: all of it, or its beginning and end with the number of omitted bytes between."""
        tail = self.tail[-KEPT_BYTES:]
        left = self.size - len(self.head) - len(tail)
        between = f"\n... {left} bytes left out ...\n".encode() if left > 0 else b""
        return (bytes(self.head) + between + bytes(tail)).decode("utf-8", "backslashreplace")


def wait_for_any(processes: Iterable[BackgroundProcess], seconds: float) -> None:
    """Read output until one of them may be over, or for some seconds."""
    poll, by_fd = select.poll(), {}
    running = [p for p in processes if not p.has_ended]
    for process in running:
        if process.fd >= 0:
            poll.register(process.fd, select.POLLIN)
            by_fd[process.fd] = process
    until = time.monotonic() + min([seconds, *(max(0.0, p.ends_at - time.monotonic()) for p in running)])
    while running and not any(termination.has_ended(p.pid) for p in running):
        left = until - time.monotonic()
        if left <= 0:
            return
        for fd, _ in poll.poll(min(left, 0.05) * 1000):
            by_fd[fd].read_output()
            if by_fd[fd].fd < 0:
                poll.unregister(fd)


def find_marked_processes(mark: str) -> list[int]:
    """Our processes whose environment contains a mark: those that left the session they were started in."""
    found, wanted = [], mark.encode()
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    for name in names:
        try:
            if os.stat(f"/proc/{name}").st_uid != os.geteuid() or int(name) == os.getpid():
                continue
            with open(f"/proc/{name}/environ", "rb") as file:
                inside = wanted in file.read(1 << 20)
        except OSError:
            continue  # it ended, or is not readable
        found += [int(name)] if inside else []
    return found


def kill_marked_processes(mark: str) -> int:
    """Kill remaining processes by their mark; return how many there were."""
    left = find_marked_processes(mark)
    for pid in left:
        termination.kill_process(pid)
    return len(left)


def find_free_port() -> int:
    """A free loopback port."""
    import socket

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
