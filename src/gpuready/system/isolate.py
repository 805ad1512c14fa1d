"""Run several probes in parallel, isolated: one that hangs or crashes only leaves its own facts unknown."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # "signal" only wraps it in enums, which costs a millisecond
import time

from gpuready.model import Fact
from gpuready.system import reap
from gpuready.system.child import Child, lone, one_line
from gpuready.system.redact import harbours, redact_all
from gpuready.system.tape import Recorder, Replay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from gpuready.system.child import Emit
    from gpuready.system.door import Door

    See = Callable[[Door], "list[Fact] | Iterator[list[Fact]]"]
    Look = tuple[str, See, Iterable[str], float]
    Found = tuple[list[tuple[Any, ...]], dict[str, Any]]


def together(door: Door, looks: Sequence[Look], spare: float = 0.0) -> list[Fact]:
    """Every fact of every probe, in order; a failed probe gives a gap for each of its keys.

    A probe may return its facts in parts, as a generator of lists: parts before a failure are kept.
    """
    return launch(door, looks, spare).collect()


def launch(door: Door, looks: Sequence[Look], spare: float = 0.0) -> Started:
    """Start every probe; `collect_facts` waits for them. `extra_seconds` is added to each deadline."""
    timed = [(name, look, keys, deadline + spare) for name, look, keys, deadline in looks]
    if not door.live:
        return _InTurn(door, timed)
    return _Forked(door, timed) if lone() else _Threaded(door, timed)


class Started:
    """Probes in progress."""

    def __init__(self, door: Door, looks: Sequence[Look]):
        self.door, self.looks = door, looks
        self.seconds: dict[str, float] = {}

    def collect(self) -> list[Fact]:
        """Wait until every probe has answered or timed out; nothing is left running."""
        raise NotImplementedError

    def ready(self) -> bool:
        """Whether every probe has answered: a caller may use the time until then."""
        return True

    def stop(self) -> None:
        """End the probes without waiting for them."""

    def _facts(self, look: Look, parts: Sequence[Found], fault: str, seconds: float) -> list[Fact]:
        name, _, keys, _ = look
        self.seconds[name] = seconds
        if isinstance(self.door, Recorder):
            for _, tape in parts:
                self.door.tape.update(tape)
            if fault:
                self.door.fail(name, fault, len(parts))
        facts = [Fact(*fields) for told, _ in parts for fields in told]
        known = {fact.key for fact in facts} if fault else ()
        missing = [key for key in keys if key not in known] if fault else ()
        return [*facts, *(Fact(key, None, source=f"probe {name}", gap=fault) for key in missing)]


def _answers(door: Door, see: See) -> Iterator[Found]:
    """Facts of one probe, part by part, as plain values, with what it recorded. Secrets are redacted."""
    at = door.branch() if isinstance(door, Recorder) else door
    told = see(at)
    for facts in (told,) if isinstance(told, (list, tuple)) else told:
        plain = [(f.key, f.value, f.source, f.how, f.gap) for f in facts]
        if harbours(plain):
            plain = [(k, redact_all(v), redact_all(s), how, redact_all(gap)) for k, v, s, how, gap in plain]
        yield plain, at.cut() if isinstance(at, Recorder) else {}


class _InTurn(Started):
    """A recorded machine neither hangs nor crashes: its probes run here, one after the other."""

    def collect(self) -> list[Fact]:
        return [fact for look in self.looks for fact in self._look(look)]

    def _look(self, look: Look) -> list[Fact]:
        begun = time.monotonic()
        fault, most = self.door.fate(look[0]) if isinstance(self.door, Replay) else ("", 0)
        parts: list[Found] = []
        try:
            answers = _answers(self.door, look[1])
            while not fault or len(parts) < most:  # as many as before the recorded failure
                parts.append(next(answers))
        except StopIteration:
            pass
        except Exception as error:
            fault = one_line(error)
        return self._facts(look, parts, fault, time.monotonic() - begun)


class _Forked(Started):
    """One child process per probe, all started at once."""

    def __init__(self, door: Door, looks: Sequence[Look]):
        super().__init__(door, looks)
        reap.sweep()  # a server probes repeatedly: collect what could not be killed last time
        self._children: list[Child | str] = []
        # A signal between the start of a child and storing it would leave the child running.
        before = _signal.pthread_sigmask(_signal.SIG_BLOCK, (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP))
        try:
            try:
                for look in looks:
                    self._children.append(_fork(door, look))
            finally:
                _signal.pthread_sigmask(_signal.SIG_SETMASK, before)
        except BaseException:
            self.stop()
            raise

    def __del__(self) -> None:
        self.stop()  # the caller was interrupted before it could wait

    def collect(self) -> list[Fact]:
        try:
            self._wait()
        finally:
            self.stop()
        facts: list[Fact] = []
        for look, child in zip(self.looks, self._children, strict=True):
            if isinstance(child, str):
                facts += self._facts(look, (), child, 0.0)
            else:
                facts += self._facts(look, child.sent, "" if child.done else child.fault, child.seconds)
        return facts

    def ready(self) -> bool:
        import select

        poll = select.poll()
        open_ = {child.fd: child for child in self._children if isinstance(child, Child) and child.fd >= 0}
        for fd in open_:
            poll.register(fd, select.POLLIN)
        over = [fd for fd, _ in poll.poll(0) if not open_[fd].take()]
        return len(over) == len(open_)

    def stop(self) -> None:
        for child in self._children:
            if isinstance(child, Child):
                child.finish("interrupted")

    def _wait(self) -> None:
        import select

        poll = select.poll()
        open_ = {child.fd: child for child in self._children if isinstance(child, Child) and child.fd >= 0}
        for fd in open_:
            poll.register(fd, select.POLLIN)
        while open_:
            next_end = min(child.until for child in open_.values())
            for fd, _ in poll.poll(max(next_end - time.monotonic(), 0) * 1000):
                if not open_[fd].take():
                    poll.unregister(fd)
                    del open_[fd]
            for fd, child in list(open_.items()):
                if child.late():
                    poll.unregister(fd)
                    del open_[fd]


def _fork(door: Door, look: Look) -> Child | str:
    _, function, _, deadline = look

    def work(emit: Emit) -> None:
        for part in _answers(door, function):
            emit(part)

    try:
        return Child(work, deadline)
    except OSError as error:
        return f"cannot start a process: {(error.strerror or 'error').lower()}"


class _Threaded(Started):
    """One daemon thread per probe, where other threads make a fork unsafe."""

    def __init__(self, door: Door, looks: Sequence[Look]):
        import threading

        super().__init__(door, looks)
        self._begun = time.monotonic()
        self._parts: list[list[Found]] = [[] for _ in looks]
        self._ends: list[list[tuple[str, float]]] = [[] for _ in looks]
        self._threads = [
            threading.Thread(target=self._work, args=(look, parts, end), daemon=True)
            for look, parts, end in zip(looks, self._parts, self._ends, strict=True)
        ]
        for thread in self._threads:
            thread.start()

    def ready(self) -> bool:
        return all(self._ends)

    def _work(self, look: Look, parts: list[Found], end: list[tuple[str, float]]) -> None:
        fault = ""
        try:
            for part in _answers(self.door, look[1]):
                parts.append(part)
        except BaseException as error:
            fault = one_line(error)
        end.append((fault, time.monotonic() - self._begun))

    def collect(self) -> list[Fact]:
        facts: list[Fact] = []
        for look, thread, parts, end in zip(self.looks, self._threads, self._parts, self._ends, strict=True):
            thread.join(max(self._begun + look[3] - time.monotonic(), 0))
            late = (f"no answer within {look[3]:g} s", time.monotonic() - self._begun)
            fault, seconds = end[0] if end else late
            facts += self._facts(look, list(parts), fault, seconds)
        return facts
