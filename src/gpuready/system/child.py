"""Run work in a forked child, so that a hang or a crash does not affect this process."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # "signal" only wraps it in enums, which costs a millisecond
import gc
import marshal
import os
import sys
import time

from gpuready.system import reap

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Emit = Callable[[Any], None]
    Work = Callable[[Emit], Any]

BIGGEST = 64 << 20
"""The most bytes one child may send; more is a fault."""

_lifeline = -1
"""In a child: the pipe to the parent. The child's own children must not keep it open."""


def lone() -> bool:
    """Whether this process has one thread only: a fork copies no other thread, but every lock it holds."""
    threading = sys.modules.get("threading")
    if threading is not None and threading.active_count() > 1:
        return False
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return True


class Child:
    """A forked child that sends plain values over a pipe. The parent polls `fd` and calls `read_messages`."""

    def __init__(self, work: Work, deadline: float):
        self.begun = time.monotonic()
        self.deadline, self.until = deadline, self.begun + reap.before(deadline)
        self.seconds = 0.0
        self.sent: list[Any] = []
        self.fault = ""
        self.done = False
        self._groups: set[int] = set()
        self._buffer = bytearray()
        self._size = 0
        self.fd, write = reap.pipe()
        reap.hold(True)
        try:
            self.pid = os.fork()
        except OSError:
            os.close(self.fd)
            os.close(write)
            reap.hold(False)
            raise
        if self.pid == 0:
            _live_and_die(work, write, deadline)
        os.close(write)
        os.set_blocking(self.fd, False)
        reap.born(self.pid)
        reap.hold(False)

    def take(self) -> bool:
        """Read what the child has sent; False when it is finished."""
        try:
            part = os.read(self.fd, 1 << 20)
        except BlockingIOError:
            return True
        self._buffer += part
        self._size += len(part)
        if self._size > BIGGEST or int.from_bytes(self._buffer[:8], "little") > BIGGEST:
            return self.finish(f"the answer is larger than {BIGGEST >> 20} MiB")
        if not self._unpack():
            return self.finish("the answer is damaged")
        if self._buffer:  # a large answer is being sent: the work is done, only the pipe is slow
            self.until = max(self.until, time.monotonic() + 0.25)
        return self.finish() if self.done or self.fault or not part else True

    def _unpack(self) -> bool:
        while len(self._buffer) >= 8:
            size = int.from_bytes(self._buffer[:8], "little")
            if len(self._buffer) < 8 + size:
                return True
            try:
                kind, value = marshal.loads(bytes(self._buffer[8 : 8 + size]))
            except (ValueError, EOFError, TypeError):
                return False
            del self._buffer[: 8 + size]
            self._handle(kind, value)
        return True

    def _handle(self, kind: str, value: Any) -> None:
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

    def finish(self, why: str = "") -> bool:
        """End the child and everything it started; sets the fault where it did not complete its work."""
        if self.fd < 0:
            return False
        self.seconds = time.monotonic() - self.begun
        over = self.done or bool(self.fault)
        # A child that has closed its pipe is exiting; give it a moment.
        by_itself = not why and not over and reap.ends(self.pid, 0.05)
        if why and not over:
            reap.ask(self.pid)
        status, stuck = reap.end(self.pid)
        self._hear_out()
        for group in self._groups:
            reap.kill(group)
        if not over:
            self.fault = (why or _how(status if by_itself else None)) + (f"; {stuck}" if stuck else "")
        return False

    def _hear_out(self) -> None:
        """Read the child's last messages, which may name processes it started; then close."""
        try:
            while self._size <= BIGGEST and (part := os.read(self.fd, 1 << 20)):
                self._buffer += part
                self._size += len(part)
        except OSError:  # nothing more, and an unkillable child still has the other end open
            pass
        if self._size <= BIGGEST:
            self._unpack()
        os.close(self.fd)
        self.fd = -1

    def late(self) -> bool:
        """End the child where its deadline has passed."""
        if time.monotonic() < self.until:
            return False
        self.finish(f"no answer within {self.deadline:g} s")
        return True


def _how(status: int | None) -> str:
    if status is None:
        return "ended without an answer"
    code, end = reap.outcome(status)
    return f"crashed: {end}" if code is None or code < 0 else f"ended without an answer (exit {code})"


def _live_and_die(work: Work, write: int, deadline: float) -> None:
    """Everything a child does. Never returns, and runs no exit handlers: those are the parent's."""
    try:
        _settle(write, deadline)
        try:
            value = work(lambda value: _send("value", value))
            _settle_accounts()
            if value is not None:
                _send("value", value)
            _send("done", None)
        except BaseException as error:
            _send("fault", one_line(error))
    except BaseException:  # the pipe is closed: nobody reads
        pass
    finally:
        os._exit(0)


def _settle_accounts() -> None:
    """Stop the timer: the work is done, and the parent may take its time to read."""
    _signal.setitimer(_signal.ITIMER_REAL, 0)


def _settle(write: int, deadline: float) -> None:
    global _lifeline
    gc.disable()  # a collection would copy every page shared with the parent
    os.setpgid(0, 0)
    for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGALRM, _signal.SIGCHLD):
        _signal.signal(number, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP))
    # The kernel ends this process even if the parent is not there to do it.
    _signal.setitimer(_signal.ITIMER_REAL, deadline + 1.0)
    if _lifeline >= 0:
        os.close(_lifeline)
    _lifeline = write
    reap.tell = _send
    if "faulthandler" in sys.modules:  # a crash here is a result, not an event to report
        sys.modules["faulthandler"].disable()
    _hush()


def _hush() -> None:
    """Redirect stdio to /dev/null: what a library prints is not part of our output."""
    try:
        null = os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    except OSError:  # a bare chroot
        return
    for fd in (0, 1, 2):
        os.dup2(null, fd)


def _send(kind: str, value: Any) -> None:
    body = marshal.dumps((kind, value))
    view = memoryview(len(body).to_bytes(8, "little") + body)
    while view:
        view = view[os.write(_lifeline, view) :]


def one_line(error: BaseException) -> str:
    """Type and first line of the message of an error, without secrets."""
    from gpuready.system.redact import redact

    said = str(error).strip().splitlines()
    text = f"{type(error).__name__}: {said[0]}" if said else type(error).__name__
    return redact(text)[:200]


def alone(work: Work, deadline: float) -> Child:
    """Run one piece of work in a child and wait for it."""
    import select

    child = Child(work, deadline)
    try:
        poll = select.poll()
        poll.register(child.fd, select.POLLIN)
        while not poll.poll(max(child.until - time.monotonic(), 0) * 1000) or child.take():
            if child.late():
                break
    finally:
        child.finish("interrupted")
    return child
