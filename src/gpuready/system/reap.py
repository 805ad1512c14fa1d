"""Child processes: ended for certain, by name, and without ever waiting longer than was promised."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # "signal" only wraps it, in enums that cost a millisecond
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

GRACE = 0.3
"""How long a process that was sent SIGKILL may take to go before it is called unkillable, in seconds."""

ASKED = 0.05
"""How long a child that was asked to end may take to do so, in seconds."""

tell: Callable[[str, int], None] | None = None
"""In an isolated child: tells the parent which process groups it has, so that they never outlive it."""

LOST = -1
"""The wait status of a child that the kernel collected itself: SIGCHLD is ignored, or somebody else waits."""

_left: list[int] = []
"""Children that could not be killed; they are collected when they do end."""


def before(deadline: float) -> float:
    """When to begin to end a child, in seconds, so that a deadline is held even by one that no kill reaches."""
    return deadline - min(GRACE + ASKED, deadline / 10)


def hold(on: bool) -> None:
    """In an isolated child: put off its own end, so that it falls never between a start and the word of it."""
    if tell:
        _signal.pthread_sigmask(_signal.SIG_BLOCK if on else _signal.SIG_UNBLOCK, (_signal.SIGTERM,))


def born(group: int) -> None:
    """A process group has been started."""
    if tell:
        tell("born", group)


def gone(group: int) -> None:
    """A process group has been ended and collected."""
    if tell:
        tell("gone", group)


def kill(group: int) -> None:
    """SIGKILL to a whole process group, and to its leader should it not have made the group yet."""
    for send in (os.killpg, os.kill):
        try:
            send(group, 9)
        except OSError:
            continue  # it is gone, which is all that was wanted


def kill_one(pid: int) -> None:
    """SIGKILL to one process alone."""
    try:
        os.kill(pid, 9)
    except OSError:
        return  # it is gone, which is all that was wanted


def ask(pid: int, seconds: float = ASKED) -> None:
    """Ask a child of ours to end, and give it a moment: what it has just started is told before it does."""
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
    """Collect what could not be killed earlier and has ended since."""
    for pid in list(_left):
        if wait(pid, 0) is not None:
            _left.remove(pid)


def ended(pid: int) -> bool:
    """Whether a child has ended; it is left to be collected, so that its number cannot be given out again."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def ends(pid: int, seconds: float) -> bool:
    """Whether a child ends by itself within a time."""
    until = time.monotonic() + seconds
    while not ended(pid):
        if time.monotonic() >= until:
            return False
        time.sleep(0.0005)
    return True


def stuck(pid: int) -> str:
    """The state of a process and the kernel function that it waits in."""
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
    """The short name of a signal: SEGV for 11."""
    import signal

    try:
        return signal.Signals(number).name[3:]
    except ValueError:
        return str(number)


def outcome(status: int) -> tuple[int | None, str]:
    """A wait status as an exit code (negative for a signal) and an end ("signal SEGV", or nothing)."""
    if status == LOST:
        return None, "exit status lost: SIGCHLD is ignored"
    code = os.waitstatus_to_exitcode(status)
    return code, f"signal {signal_name(-code)}" if code < 0 else ""


def pipe() -> tuple[int, int]:
    """A pipe above the standard three descriptors, which may be free where our own were closed."""
    read, write = os.pipe()
    return _high(read), _high(write)


def _high(fd: int) -> int:
    if fd > 2:
        return fd
    import fcntl

    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(fd)
    return moved
