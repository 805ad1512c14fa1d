"""End child processes reliably, by pid, within the promised time."""

import fcntl
import os
import signal
import time
from collections.abc import Callable

from gpuready.system.process.inspection import find_marked_processes, read_proc_file, read_process_stat

KILL_GRACE_S = 0.3
"""Seconds a process may take to exit after SIGKILL before it is called unkillable."""

PROCESSOR_GRACE_S = 5.0
"""Seconds a killed process may wait for a processor, which it needs to exit: it is not stuck in a call."""

TERM_GRACE_S = 0.05
"""Seconds a child may take to exit after SIGTERM."""

ENDING_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

report_group: Callable[[str, int], None] | None = None
"""In an isolated child: reports its process groups to the parent, so that they never outlive it."""

STATUS_LOST = -1
"""Wait status of a child the kernel collected itself: SIGCHLD is ignored, or another thread waits."""

_unkillable: list[int] = []
"""Children that could not be killed; collected once they end."""


def time_until_kill(deadline: float) -> float:
    """Seconds until a child must be ended so that the deadline is kept even if no kill reaches it."""
    return deadline - min(KILL_GRACE_S + TERM_GRACE_S, deadline / 10)


def defer_termination(on: bool) -> None:
    """In an isolated child: block SIGTERM, so that it never arrives between starting a process and reporting it."""
    if report_group:
        signal.pthread_sigmask(signal.SIG_BLOCK if on else signal.SIG_UNBLOCK, (signal.SIGTERM,))


def hold_signals() -> set[signal.Signals | int]:
    """Hold the signals that end us, so that none arrives between the start of a program and storing it; return the mask before."""
    return signal.pthread_sigmask(signal.SIG_BLOCK, ENDING_SIGNALS)


def release_signals(before: set[signal.Signals | int]) -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def report_group_started(group: int) -> None:
    if report_group:
        report_group("born", group)


def report_group_ended(group: int) -> None:
    """A process group has ended and was collected."""
    if report_group:
        report_group("gone", group)


def kill_group(group: int) -> None:
    """SIGKILL to a process group, and to its leader in case it has not made the group yet."""
    for send in (os.killpg, os.kill):
        try:
            send(group, 9)
        except OSError:
            continue  # already gone


def kill_process(pid: int) -> None:
    """SIGKILL to one process."""
    try:
        os.kill(pid, 9)
    except OSError:
        return  # already gone


def kill_marked_processes(mark: str) -> int:
    """Kill our processes with a mark in their environment; return how many there were."""
    marked = find_marked_processes(mark)
    for pid in marked:
        kill_process(pid)
    return len(marked)


def request_termination(pid: int, seconds: float = TERM_GRACE_S) -> None:
    """Send SIGTERM to a child and wait a moment: it first reports what it has just started."""
    try:
        os.kill(pid, 15)
    except OSError:
        return
    ends_within(pid, seconds)


def wait_for_child(pid: int, seconds: float) -> int | None:
    """Collect a child: its wait status, or None when it has not ended in time."""
    until, nap = time.monotonic() + seconds, 0.0002
    while True:
        try:
            done, status = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            return STATUS_LOST
        if done:
            return status
        if time.monotonic() >= until:
            return None
        time.sleep(nap)
        nap = min(nap * 2, 0.01)


def kill_and_collect(pid: int, grace: float = KILL_GRACE_S) -> tuple[int | None, str]:
    """Kill a group and collect its leader: the wait status, or None and where it is stuck."""
    kill_group(pid)
    status, until = wait_for_child(pid, grace), time.monotonic() + PROCESSOR_GRACE_S
    while status is None and time.monotonic() < until and _is_ending(pid):
        status = wait_for_child(pid, grace)
    if status is None:
        _unkillable.append(pid)
        return None, f"unkillable: pid {pid} {describe_stuck_process(pid)}"
    report_group_ended(pid)
    return status, ""


def collect_unkillable() -> None:
    """Collect children that could not be killed earlier and have ended since."""
    for pid in list(_unkillable):
        if wait_for_child(pid, 0) is not None:
            _unkillable.remove(pid)


def has_ended(pid: int) -> bool:
    """Whether a child has ended; it is not collected, so that its pid cannot be reused."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


def ends_within(pid: int, seconds: float) -> bool:
    """Whether a child ends by itself within some seconds."""
    until = time.monotonic() + seconds
    while not has_ended(pid):
        if time.monotonic() >= until:
            return False
        time.sleep(0.0005)
    return True


def _is_ending(pid: int) -> bool:
    """On a busy processor a killed process still runs, or waits for its own threads to end (its state is then Z)."""
    return read_process_stat(pid)[0] in ("R", "Z")


def describe_stuck_process(pid: int) -> str:
    """State of a process and the kernel function it waits in."""
    state, where = read_process_stat(pid)[0], read_proc_file(f"/proc/{pid}/wchan")
    if not state:
        return "in an unknown state"
    return f"in state {state}" + (f" ({where})" if where and where != "0" else "")


def signal_name(number: int) -> str:
    """``11`` -> ``SEGV``."""
    try:
        return signal.Signals(number).name[3:]
    except ValueError:
        return str(number)


def decode_wait_status(status: int) -> tuple[int | None, str]:
    """A wait status as an exit code (negative for a signal) and an end ("signal SEGV", or empty)."""
    if status == STATUS_LOST:
        return None, "exit status lost: SIGCHLD is ignored"
    code = os.waitstatus_to_exitcode(status)
    return code, f"signal {signal_name(-code)}" if code < 0 else ""


def make_pipe() -> tuple[int, int]:
    """A pipe above descriptors 0 to 2, which may be free where our own were closed."""
    read, write = os.pipe()
    return _move_above_stdio(read), _move_above_stdio(write)


def _move_above_stdio(fd: int) -> int:
    if fd > 2:
        return fd
    moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(fd)
    return moved


def note_interrupt(error: BaseException, text: str) -> None:
    """Let a signal's exception say what was undone and what is left. The first to note knows best; errors are left alone."""
    if not isinstance(error, Exception) and not error.args:
        error.args = (text,)
