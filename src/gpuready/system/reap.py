"""End child processes reliably, by pid, within the promised time."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # "signal" only wraps it in enums, which costs a millisecond
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

GRACE = 0.3
"""Seconds a process may take to exit after SIGKILL before it is called unkillable."""

ASKED = 0.05
"""Seconds a child may take to exit after SIGTERM."""

tell: Callable[[str, int], None] | None = None
"""In an isolated child: reports its process groups to the parent, so that they never outlive it."""

LOST = -1
"""Wait status of a child the kernel collected itself: SIGCHLD is ignored, or another thread waits."""

_left: list[int] = []
"""Children that could not be killed; collected once they end."""


def before(deadline: float) -> float:
    """Seconds until a child must be ended so that the deadline is kept even if no kill reaches it."""
    return deadline - min(GRACE + ASKED, deadline / 10)


def hold(on: bool) -> None:
    """In an isolated child: block SIGTERM, so that it never arrives between starting a process and reporting it."""
    if tell:
        _signal.pthread_sigmask(_signal.SIG_BLOCK if on else _signal.SIG_UNBLOCK, (_signal.SIGTERM,))


def born(group: int) -> None:
    if tell:
        tell("born", group)


def gone(group: int) -> None:
    """A process group has ended and was collected."""
    if tell:
        tell("gone", group)


def kill(group: int) -> None:
    """SIGKILL to a process group, and to its leader in case it has not made the group yet."""
    for send in (os.killpg, os.kill):
        try:
            send(group, 9)
        except OSError:
            continue  # already gone


def kill_one(pid: int) -> None:
    """SIGKILL to one process."""
    try:
        os.kill(pid, 9)
    except OSError:
        return  # already gone


def ask(pid: int, seconds: float = ASKED) -> None:
    """Send SIGTERM to a child and wait a moment: it first reports what it has just started."""
    try:
        os.kill(pid, 15)
    except OSError:
        return
    ends(pid, seconds)


def wait(pid: int, seconds: float) -> int | None:
    """Collect a child: its wait status, or None when it has not ended in time."""
    until, nap = time.monotonic() + seconds, 0.0002
    while True:
        try:
            done, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return LOST
        if done:
            return status
        if time.monotonic() >= until:
            return None
        time.sleep(nap)
        nap = min(nap * 2, 0.01)


def end(pid: int, grace: float = GRACE) -> tuple[int | None, str]:
    """Kill a group and collect its leader: the wait status, or None and where it is stuck."""
    kill(pid)
    status = wait(pid, grace)
    if status is None:
        _left.append(pid)
        return None, f"unkillable: pid {pid} {stuck(pid)}"
    gone(pid)
    return status, ""


def sweep() -> None:
    """Collect children that could not be killed earlier and have ended since."""
    for pid in list(_left):
        if wait(pid, 0) is not None:
            _left.remove(pid)


def ended(pid: int) -> bool:
    """Whether a child has ended; it is not collected, so that its pid cannot be reused."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def ends(pid: int, seconds: float) -> bool:
    """Whether a child ends by itself within some seconds."""
    until = time.monotonic() + seconds
    while not ended(pid):
        if time.monotonic() >= until:
            return False
        time.sleep(0.0005)
    return True


def stuck(pid: int) -> str:
    """State of a process and the kernel function it waits in."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            state = file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return "in an unknown state"
    try:
        with open(f"/proc/{pid}/wchan", encoding="utf-8", errors="replace") as file:
            where = file.read().strip()
    except OSError:
        where = ""
    return f"in state {state}" + (f" ({where})" if where and where != "0" else "")


def signal_name(number: int) -> str:
    """``11`` -> ``SEGV``."""
    import signal

    try:
        return signal.Signals(number).name[3:]
    except ValueError:
        return str(number)


def outcome(status: int) -> tuple[int | None, str]:
    """A wait status as an exit code (negative for a signal) and an end ("signal SEGV", or empty)."""
    if status == LOST:
        return None, "exit status lost: SIGCHLD is ignored"
    code = os.waitstatus_to_exitcode(status)
    return code, f"signal {signal_name(-code)}" if code < 0 else ""


def pipe() -> tuple[int, int]:
    """A pipe above descriptors 0 to 2, which may be free where our own were closed."""
    read, write = os.pipe()
    return _high(read), _high(write)


def _high(fd: int) -> int:
    if fd > 2:
        return fd
    import fcntl

    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(fd)
    return moved
