"""Run work in forked children, so that a hang or a crash does not affect this process."""

import gc
import marshal
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

from gpuready.system.host_access import AccessError
from gpuready.system.process import termination
from gpuready.system.process.inspection import read_process_stat, read_processor_seconds
from gpuready.system.redaction.text import redact_text

Emit = Callable[[Any], None]
Work = Callable[[Emit], Any]


MAX_ANSWER_BYTES = 64 << 20
"""The most bytes one child may send; more is a fault."""

STARVED_FACTOR = 10
"""How many times its deadline a probe may take that could run and gets no processor: that is a busy machine, not a hang."""
LOOK_AGAIN_S = 0.5

_parent_pipe = -1
"""In a child: the pipe to the parent. The child's own children must not keep it open."""


def is_single_threaded() -> bool:
    """Whether this process has one thread only: a fork copies no other thread, but every lock it holds."""
    threading = sys.modules.get("threading")
    if threading is not None and threading.active_count() > 1:
        return False
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return True


class ForkedChild:
    """A forked child that sends plain values over a pipe. The parent polls `fd` and calls `read_messages`."""

    def __init__(self, work: Work, deadline: float, factor: float = 1):
        """Start it. ``factor``: how many times the deadline it may take while it waits for a processor."""
        self.started_at = time.monotonic()
        self.deadline, self.ends_at = deadline, self.started_at + termination.time_until_kill(deadline)
        self.last_end = self.started_at + termination.time_until_kill(deadline * factor)
        self.seconds = 0.0
        self.sent: list[Any] = []
        self.fault = ""
        self.done = False
        self._groups: set[int] = set()
        self._buffer = bytearray()
        self._size = 0
        self.fd, write = termination.make_pipe()
        termination.defer_termination(True)
        try:
            self.pid = os.fork()
        except OSError:
            os.close(self.fd)
            os.close(write)
            termination.defer_termination(False)
            raise
        if self.pid == 0:
            _run_child(work, write, deadline * factor)
        os.close(write)
        os.set_blocking(self.fd, False)
        termination.report_group_started(self.pid)
        termination.defer_termination(False)

    def read_messages(self) -> bool:
        """Read what the child has sent; False when it is finished."""
        try:
            part = os.read(self.fd, 1 << 20)
        except BlockingIOError:
            return True
        self._buffer += part
        self._size += len(part)
        if self._size > MAX_ANSWER_BYTES or int.from_bytes(self._buffer[:8], "little") > MAX_ANSWER_BYTES:
            return self.end_child(f"the answer is larger than {MAX_ANSWER_BYTES >> 20} MiB")
        if not self._unpack_messages():
            return self.end_child("the answer is damaged")
        if self._buffer:  # a large answer is being sent: the work is done, only the pipe is slow
            self.ends_at = max(self.ends_at, time.monotonic() + 0.25)
        return self.end_child() if self.done or self.fault or not part else True

    def _unpack_messages(self) -> bool:
        while len(self._buffer) >= 8:
            size = int.from_bytes(self._buffer[:8], "little")
            if len(self._buffer) < 8 + size:
                return True
            try:
                kind, value = marshal.loads(bytes(self._buffer[8 : 8 + size]))
            except (ValueError, EOFError, TypeError):
                return False
            del self._buffer[: 8 + size]
            self._handle_message(kind, value)
        return True

    def _handle_message(self, kind: str, value: Any) -> None:
        if kind == "born":
            self._groups.add(value)
        elif kind == "gone":
            self._groups.discard(value)
        elif kind == "fault":
            self.fault = value
        elif kind == "done":
            self.done = True
        else:
            self.sent.append(value)

    def end_child(self, reason: str = "") -> bool:
        """End the child and everything it started; sets the fault where it did not complete its work."""
        if self.fd < 0:
            return False
        self.seconds = time.monotonic() - self.started_at
        is_over = self.done or bool(self.fault)
        # A child that has closed its pipe is exiting; give it a moment.
        by_itself = not reason and not is_over and termination.ends_within(self.pid, 0.05)
        if reason and not is_over:
            termination.request_termination(self.pid)
        status, stuck = termination.kill_and_collect(self.pid)
        self._drain_pipe()
        for group in self._groups:
            termination.kill_group(group)
        if not is_over:
            self.fault = (reason or _describe_exit(status if by_itself else None)) + (f"; {stuck}" if stuck else "")
        return False

    def _drain_pipe(self) -> None:
        """Read the child's last messages, which may name processes it started; then close."""
        try:
            while self._size <= MAX_ANSWER_BYTES and (part := os.read(self.fd, 1 << 20)):
                self._buffer += part
                self._size += len(part)
        except OSError:  # nothing more, and an unkillable child still has the other end open
            pass
        if self._size <= MAX_ANSWER_BYTES:
            self._unpack_messages()
        os.close(self.fd)
        self.fd = -1

    def end_if_late(self) -> bool:
        """End the child where its deadline has passed, and it is not for want of a processor."""
        now = time.monotonic()
        if now < self.ends_at:
            return False
        if now < self.last_end and is_starved(self.pid, self.deadline):
            self.ends_at = now + LOOK_AGAIN_S
            return False
        waited = max(self.deadline, round(now - self.started_at))
        self.end_child(f"no answer within {waited:g} s")
        return True


def is_starved(pid: int, seconds: float) -> bool:
    """Whether a process could run and has had less of a processor than these seconds. A hang waits, or has had them all."""
    for _ in range(5):  # it may wait for a file just now
        if read_process_stat(pid)[0] == "R":
            return read_processor_seconds(pid) < 0.8 * seconds
        time.sleep(0.002)
    return False


def _describe_exit(status: int | None) -> str:
    if status is None:
        return "ended without an answer"
    code, end = termination.decode_wait_status(status)
    return f"crashed: {end}" if code is None or code < 0 else f"ended without an answer (exit {code})"


def _run_child(work: Work, write: int, deadline: float) -> None:
    """Everything a child does. Never returns, and runs no exit handlers: those are the parent's."""
    try:
        _prepare_child(write, deadline)
        try:
            value = work(lambda value: _send_message("value", value))
            _cancel_timer()
            if value is not None:
                _send_message("value", value)
            _send_message("done", None)
        except BaseException as error:
            _send_message("fault", summarize_error(error))
    except BaseException:  # the pipe is closed: nobody reads
        pass
    finally:
        os._exit(0)


def _cancel_timer() -> None:
    """Stop the timer: the work is done, and the parent may take its time to read."""
    signal.setitimer(signal.ITIMER_REAL, 0)


def _prepare_child(write: int, deadline: float) -> None:
    global _parent_pipe
    gc.disable()  # a collection would copy every page shared with the parent
    os.setpgid(0, 0)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP))
    # The kernel ends this process even if the parent is not there to do it.
    signal.setitimer(signal.ITIMER_REAL, deadline + 1.0)
    if _parent_pipe >= 0:
        os.close(_parent_pipe)
    _parent_pipe = write
    termination.report_group = _send_message
    if "faulthandler" in sys.modules:  # a crash here is a result, not an event to report
        sys.modules["faulthandler"].disable()
    _silence_output()


def _silence_output() -> None:
    """Redirect stdio to /dev/null: what a library prints is not part of our output."""
    try:
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # a bare chroot
        return
    for fd in (0, 1, 2):
        os.dup2(null, fd)


def _send_message(kind: str, value: Any) -> None:
    body = marshal.dumps((kind, value))
    view = memoryview(len(body).to_bytes(8, "little") + body)
    while view:
        view = view[os.write(_parent_pipe, view) :]


def summarize_error(error: BaseException) -> str:
    """Type and first line of the message of an error, without secrets."""
    lines = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
    return redact_text(text)[:200]


def run_in_child(work: Work, deadline: float) -> ForkedChild:
    """Run one piece of work in a child and wait for it."""
    child = ForkedChild(work, deadline)
    try:
        wait_for_children([child])
    finally:
        child.end_child("interrupted")
    return child


def call_within(work: Callable[[], str], seconds: float, name: str) -> str:
    """Return what ``work`` returns; AccessError where it fails, or where what it waits for does not answer in time."""
    outcome: list[tuple[bool, str]] = []

    def run(emit: Emit) -> None:
        try:
            emit((True, work()))
        except AccessError as error:
            emit((False, str(error)))

    if is_single_threaded():
        outcome += run_in_child(run, seconds).sent
    else:
        import threading

        thread = threading.Thread(target=run, args=(outcome.append,), daemon=True)
        thread.start()
        thread.join(seconds)
    succeeded, text = outcome[0] if outcome else (False, f"{name} does not answer within {seconds:g} s")
    if not succeeded:
        raise AccessError(text)
    return text


def wait_for_children(children: Iterable[ForkedChild], block: bool = True) -> bool:
    """Read messages until every child is finished or late, or only what is there now; return whether all are over."""
    poll = select.poll()
    running = {child.fd: child for child in children if child.fd >= 0}
    for fd in running:
        poll.register(fd, select.POLLIN)
    while running:
        next_end = min(child.ends_at for child in running.values())
        for fd, _ in poll.poll(max(next_end - time.monotonic(), 0) * 1000 if block else 0):
            running[fd].read_messages()
        for fd, child in list(running.items()):
            if child.fd < 0 or (block and child.end_if_late()):
                poll.unregister(fd)
                del running[fd]
        if not block:
            break
    return not running
