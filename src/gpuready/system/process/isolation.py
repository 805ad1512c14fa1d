"""Run work in forked children, so that a hang or a crash does not affect this process; several probes in parallel.

A probe that hangs or crashes only leaves its own facts unknown.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # "signal" only wraps it in enums, which costs a millisecond
import gc
import marshal
import os
import sys
import time
from itertools import islice

from gpuready.model import Fact
from gpuready.system.host_access import AccessError
from gpuready.system.process import termination
from gpuready.system.recording import RecordingHost, ReplayHost
from gpuready.system.redaction.text import may_contain_secret, redact_json, redact_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from gpuready.system.host_access import HostAccess

    Emit = Callable[[Any], None]
    Work = Callable[[Emit], Any]
    ProbeFunction = Callable[[HostAccess], "list[Fact] | Iterator[list[Fact]]"]
    ProbeTask = tuple[str, ProbeFunction, Iterable[str], float]
    ProbeAnswer = tuple[list[tuple[Any, ...]], dict[str, Any]]

MAX_ANSWER_BYTES = 64 << 20
"""The most bytes one child may send; more is a fault."""

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

    def __init__(self, work: Work, deadline: float):
        self.started_at = time.monotonic()
        self.deadline, self.ends_at = deadline, self.started_at + termination.time_until_kill(deadline)
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
            _run_child(work, write, deadline)
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
        """End the child where its deadline has passed."""
        if time.monotonic() < self.ends_at:
            return False
        self.end_child(f"no answer within {self.deadline:g} s")
        return True


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
    _signal.setitimer(_signal.ITIMER_REAL, 0)


def _prepare_child(write: int, deadline: float) -> None:
    global _parent_pipe
    gc.disable()  # a collection would copy every page shared with the parent
    os.setpgid(0, 0)
    for number in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGALRM, _signal.SIGCHLD):
        _signal.signal(number, _signal.SIG_DFL)
    _signal.pthread_sigmask(_signal.SIG_UNBLOCK, (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP))
    # The kernel ends this process even if the parent is not there to do it.
    _signal.setitimer(_signal.ITIMER_REAL, deadline + 1.0)
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
    import select

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


# -- probes


def run_probes(host: HostAccess, tasks: Sequence[ProbeTask], extra_seconds: float = 0.0) -> list[Fact]:
    """Every fact of every probe, in order; a failed probe gives a gap for each of its keys.

    A probe may return its facts in parts, as a generator of lists: parts before a failure are kept.
    """
    return start_probes(host, tasks, extra_seconds).collect_facts()


def start_probes(host: HostAccess, tasks: Sequence[ProbeTask], extra_seconds: float = 0.0) -> ProbeRun:
    """Start every probe; `collect_facts` waits for them. `extra_seconds` is added to each deadline."""
    timed = [(name, task, keys, deadline + extra_seconds) for name, task, keys, deadline in tasks]
    if not host.is_live:
        return _SequentialRun(host, timed)
    return _ForkedRun(host, timed) if is_single_threaded() else _ThreadedRun(host, timed)


class ProbeRun:
    """Probes in progress."""

    def __init__(self, host: HostAccess, tasks: Sequence[ProbeTask]):
        self.host, self.tasks = host, tasks
        self.seconds: dict[str, float] = {}

    def collect_facts(self) -> list[Fact]:
        """Wait until every probe has answered or timed out; nothing is left running."""
        raise NotImplementedError

    def all_ready(self) -> bool:
        """Whether every probe has answered: a caller may use the time until then."""
        return True

    def stop_probes(self) -> None:
        """End the probes without waiting for them."""

    def _facts_of_probe(self, task: ProbeTask, parts: Sequence[ProbeAnswer], fault: str, seconds: float) -> list[Fact]:
        name, _, keys, _ = task
        self.seconds[name] = seconds
        if isinstance(self.host, RecordingHost):
            for _, recording in parts:
                self.host.recording.update(recording)
            if fault:
                self.host.record_failure(name, fault, len(parts))
        facts = [Fact(*fields) for reported, _ in parts for fields in reported]
        known = {fact.key for fact in facts} if fault else ()
        missing = [key for key in keys if key not in known] if fault else ()
        return [*facts, *(Fact(key, None, source=f"probe {name}", gap=fault) for key in missing)]


def _probe_answers(host: HostAccess, probe: ProbeFunction) -> Iterator[ProbeAnswer]:
    """Facts of one probe, part by part, as plain values, with what it recorded. Secrets are redacted."""
    at = host.branch_recording() if isinstance(host, RecordingHost) else host
    reported = probe(at)
    for facts in (reported,) if isinstance(reported, (list, tuple)) else reported:
        plain = [(f.key, f.value, f.source, f.how, f.gap) for f in facts]
        if may_contain_secret(plain):
            plain = [(k, redact_json(v), redact_json(s), how, redact_json(gap)) for k, v, s, how, gap in plain]
        yield plain, at.take_recording() if isinstance(at, RecordingHost) else {}


def _collect_parts(host: HostAccess, task: ProbeTask, parts: list[ProbeAnswer], at_most: int | None = None) -> str:
    """Run a probe here and collect its parts; return why it failed, or an empty text."""
    try:
        for part in islice(_probe_answers(host, task[1]), at_most):
            parts.append(part)  # one at a time: another thread reads what is there at the deadline
    except (Exception, SystemExit) as error:
        return summarize_error(error)
    return ""


class _SequentialRun(ProbeRun):
    """A recorded machine neither hangs nor crashes: its probes run here, one after the other."""

    def collect_facts(self) -> list[Fact]:
        return [fact for task in self.tasks for fact in self._run_probe(task)]

    def _run_probe(self, task: ProbeTask) -> list[Fact]:
        started, parts = time.monotonic(), []  # type: float, list[ProbeAnswer]
        recorded, most = self.host.recorded_failure(task[0]) if isinstance(self.host, ReplayHost) else ("", 0)
        # as many parts as there were before the recorded failure
        fault = _collect_parts(self.host, task, parts, most if recorded else None)
        return self._facts_of_probe(task, parts, fault or recorded, time.monotonic() - started)


class _ForkedRun(ProbeRun):
    """One child process per probe, all started at once."""

    def __init__(self, host: HostAccess, tasks: Sequence[ProbeTask]):
        super().__init__(host, tasks)
        termination.collect_unkillable()  # a server probes repeatedly: collect what could not be killed last time
        self._children: list[ForkedChild | str] = []
        # A signal between the start of a child and storing it would leave the child running.
        before = _signal.pthread_sigmask(_signal.SIG_BLOCK, (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP))
        try:
            try:
                for task in tasks:
                    self._children.append(_fork_probe(host, task))
            finally:
                _signal.pthread_sigmask(_signal.SIG_SETMASK, before)
        except BaseException:
            self.stop_probes()
            raise

    def __del__(self) -> None:
        self.stop_probes()  # the caller was interrupted before it could wait

    def collect_facts(self) -> list[Fact]:
        try:
            self._wait_for_children()
        finally:
            self.stop_probes()
        facts: list[Fact] = []
        for task, child in zip(self.tasks, self._children, strict=True):
            if isinstance(child, str):
                facts += self._facts_of_probe(task, (), child, 0.0)
            else:
                facts += self._facts_of_probe(task, child.sent, "" if child.done else child.fault, child.seconds)
        return facts

    def all_ready(self) -> bool:
        return wait_for_children(self._forked_children(), block=False)

    def _forked_children(self) -> list[ForkedChild]:
        return [child for child in self._children if isinstance(child, ForkedChild)]

    def stop_probes(self) -> None:
        for child in self._forked_children():
            child.end_child("interrupted")

    def _wait_for_children(self) -> None:
        wait_for_children(self._forked_children())


def _fork_probe(host: HostAccess, task: ProbeTask) -> ForkedChild | str:
    _, function, _, deadline = task

    def send_answers(emit: Emit) -> None:
        for part in _probe_answers(host, function):
            emit(part)

    try:
        return ForkedChild(send_answers, deadline)
    except OSError as error:
        return f"cannot start a process: {(error.strerror or 'error').lower()}"


class _ThreadedRun(ProbeRun):
    """One daemon thread per probe, where other threads make a fork unsafe."""

    def __init__(self, host: HostAccess, tasks: Sequence[ProbeTask]):
        import threading

        super().__init__(host, tasks)
        self._begun = time.monotonic()
        self._parts: list[list[ProbeAnswer]] = [[] for _ in tasks]
        self._ends: list[list[tuple[str, float]]] = [[] for _ in tasks]
        self._threads = [
            threading.Thread(target=self._run_in_thread, args=(task, parts, end), daemon=True)
            for task, parts, end in zip(tasks, self._parts, self._ends, strict=True)
        ]
        for thread in self._threads:
            thread.start()

    def all_ready(self) -> bool:
        return all(self._ends)

    def _run_in_thread(self, task: ProbeTask, parts: list[ProbeAnswer], end: list[tuple[str, float]]) -> None:
        fault = _collect_parts(self.host, task, parts)
        end.append((fault, time.monotonic() - self._begun))

    def collect_facts(self) -> list[Fact]:
        facts: list[Fact] = []
        for task, thread, parts, end in zip(self.tasks, self._threads, self._parts, self._ends, strict=True):
            thread.join(max(self._begun + task[3] - time.monotonic(), 0))
            late = (f"no answer within {task[3]:g} s", time.monotonic() - self._begun)
            fault, seconds = end[0] if end else late
            facts += self._facts_of_probe(task, list(parts), fault, seconds)
        return facts
