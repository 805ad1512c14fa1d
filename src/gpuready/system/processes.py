"""Programs running in the background: each in its own session and folder, with a deadline.

Output is read continuously; only its beginning and end are kept. When a program is over, nothing of it keeps running.
"""

from __future__ import annotations

import os
import select
import time

from gpuready.system import reap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

KEPT = 64 << 10
"""Bytes of output kept at the beginning, and as many at the end."""


PATIENCE = 10.0
"""Seconds a killed process may take to exit: a driver first releases a GPU full of memory."""


class Process:
    """One program from start to end."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: str, deadline: float):
        import subprocess

        self.begun = time.monotonic()
        self.until = self.begun + deadline
        self.seconds, self.exit, self.end = 0.0, None, ""  # type: float, int | None, str
        self.head, self.tail, self.size = bytearray(), bytearray(), 0
        self.over = False
        read, write = reap.pipe()
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
            self._close()
            self.over, self.end = True, f"cannot execute: {getattr(error, 'strerror', None) or error}"
        finally:
            os.close(write)
        self.pid = 0 if self.over else self._popen.pid

    def take(self) -> None:
        """Read available output without waiting; at most a few MiB, so that others get their turn."""
        for _ in range(64):
            try:
                part = os.read(self.fd, 1 << 16)
            except BlockingIOError:
                return
            if not part:
                self._close()
                return
            self._keep(part)

    def _keep(self, part: bytes) -> None:
        self.size += len(part)
        room = KEPT - len(self.head)
        if room > 0:
            self.head += part[:room]
            part = part[room:]
        self.tail += part
        if len(self.tail) > 2 * KEPT:
            del self.tail[:-KEPT]

    def look(self) -> bool:
        """Whether it is over: by itself, or by its deadline."""
        if self.over:
            return True
        if reap.ended(self.pid):
            return self.stop("")
        return self.stop("deadline") if time.monotonic() >= self.until else False

    def stop(self, why: str) -> bool:
        """End it and everything it started."""
        if self.over:
            return True
        self.over = True
        self.seconds = time.monotonic() - self.begun
        status, stuck = reap.end(self.pid, PATIENCE)
        code, told = (None, stuck) if status is None else reap.outcome(status)
        self._popen.returncode = (
            0 if code is None else code
        )  # already collected here, not by subprocess
        self.exit, self.end = (None, stuck or why) if why else (code, told)
        if self.fd >= 0:
            self.take()
            self._close()
        return True

    def _close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def text(self) -> str:
        """The output: all of it, or its beginning and end with the number of omitted bytes between."""
        tail = self.tail[-KEPT:]
        left = self.size - len(self.head) - len(tail)
        between = f"\n... {left} bytes left out ...\n".encode() if left > 0 else b""
        return (bytes(self.head) + between + bytes(tail)).decode("utf-8", "backslashreplace")


def wait(several: Iterable[Process], seconds: float) -> None:
    """Read output until one of them may be over, or for some seconds."""
    poll, by_fd = select.poll(), {}
    running = [p for p in several if not p.over]
    for process in running:
        if process.fd >= 0:
            poll.register(process.fd, select.POLLIN)
            by_fd[process.fd] = process
    until = time.monotonic() + min([seconds, *(max(0.0, p.until - time.monotonic()) for p in running)])
    while running and not any(reap.ended(p.pid) for p in running):
        left = until - time.monotonic()
        if left <= 0:
            return
        for fd, _ in poll.poll(min(left, 0.05) * 1000):
            by_fd[fd].take()
            if by_fd[fd].fd < 0:
                poll.unregister(fd)


def marked(mark: str) -> list[int]:
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


def end_marked(mark: str) -> int:
    """Kill remaining processes by their mark; return how many there were."""
    left = marked(mark)
    for pid in left:
        reap.kill_one(pid)
    return len(left)


def free_port() -> int:
    """A free loopback port."""
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port
