"""Several looks at once, each on its own: one that hangs or crashes is a gap, and only its own."""

from __future__ import annotations

import time

from tarmac.model import Fact
from tarmac.system.child import Child, lone, one_line
from tarmac.system.redact import redact_all
from tarmac.system.tape import Recorder, Replay

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from tarmac.system.child import Emit
    from tarmac.system.door import Door

    Look = tuple[str, Callable[[Door], "list[Fact]"], Iterable[str], float]
    Found = tuple[list[tuple[Any, ...]], dict[str, Any]]


def together(door: Door, looks: Sequence[Look], spare: float = 0.0) -> list[Fact]:
    """Every fact of every look, in their order; a look that fails gives a gap for each of its keys."""
    return launch(door, looks, spare).collect()


def launch(door: Door, looks: Sequence[Look], spare: float = 0.0) -> Started:
    """Start every look; `collect` waits for them. `spare` is added to each deadline, in seconds."""
    timed = [(name, look, keys, deadline + spare) for name, look, keys, deadline in looks]
    if not door.live:
        return _InTurn(door, timed)
    return _Forked(door, timed) if lone() else _Threaded(door, timed)


class Started:
    """Looks under way."""

    def __init__(self, door: Door, looks: Sequence[Look]):
        self.door, self.looks = door, looks
        self.seconds: dict[str, float] = {}

    def collect(self) -> list[Fact]:
        """Wait until every look has answered or run out of time; nothing of it is left running."""
        raise NotImplementedError

    def ready(self) -> bool:
        """Whether every look has something to say already: a caller may use the time until then."""
        return True

    def stop(self) -> None:
        """End the looks without waiting for them."""

    def _facts(self, look: Look, found: Found | None, fault: str, seconds: float) -> list[Fact]:
        name, _, keys, _ = look
        self.seconds[name] = seconds
        if found is None:
            if isinstance(self.door, Recorder):
                self.door.fail(name, fault)
            return [Fact(k, None, source=f"probe {name}", gap=fault) for k in keys]
        if isinstance(self.door, Recorder):
            self.door.tape.update(found[1])
        return [Fact(*fields) for fields in found[0]]


def _answer(door: Door, look: Callable[[Door], list[Fact]]) -> Found:
    """What one look found, as plain values, and what it recorded. No secret leaves it."""
    at = door.branch() if isinstance(door, Recorder) else door
    facts = [(f.key, redact_all(f.value), redact_all(f.source), f.how, redact_all(f.gap)) for f in look(at)]
    return facts, at.tape if isinstance(at, Recorder) else {}


class _InTurn(Started):
    """A recorded machine neither hangs nor crashes: its looks run here, one after the other."""

    def collect(self) -> list[Fact]:
        return [fact for look in self.looks for fact in self._look(look)]

    def _look(self, look: Look) -> list[Fact]:
        begun = time.monotonic()
        fault = self.door.fate(look[0]) if isinstance(self.door, Replay) else ""
        found = None
        if not fault:
            try:
                found = _answer(self.door, look[1])
            except Exception as error:
                fault = one_line(error)
        return self._facts(look, found, fault, time.monotonic() - begun)


class _Forked(Started):
    """One child process for each look, all started at once."""

    def __init__(self, door: Door, looks: Sequence[Look]):
        super().__init__(door, looks)
        self._children: list[Child | str] = []
        try:
            for look in looks:
                self._children.append(_fork(door, look))
        except BaseException:
            self.stop()
            raise

    def collect(self) -> list[Fact]:
        try:
            self._wait()
        finally:
            self.stop()
        facts: list[Fact] = []
        for look, child in zip(self.looks, self._children, strict=True):
            if isinstance(child, str):
                facts += self._facts(look, None, child, 0.0)
            else:
                found = child.sent[0] if child.done else None
                facts += self._facts(look, found, child.fault, child.seconds)
        return facts

    def ready(self) -> bool:
        import select

        poll, waiting = select.poll(), 0
        for child in self._children:
            if isinstance(child, Child) and child.fd >= 0:
                poll.register(child.fd, select.POLLIN)
                waiting += 1
        return len(poll.poll(0)) == waiting

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

    def work(_: Emit) -> Found:
        return _answer(door, function)

    try:
        return Child(work, deadline)
    except OSError as error:
        return f"cannot start a process: {(error.strerror or 'error').lower()}"


class _Threaded(Started):
    """One daemon thread for each look, where other threads make a fork unsafe."""

    def __init__(self, door: Door, looks: Sequence[Look]):
        import threading

        super().__init__(door, looks)
        self._begun = time.monotonic()
        self._results: list[list[tuple[Found | None, str, float]]] = [[] for _ in looks]
        self._threads = [
            threading.Thread(target=self._work, args=(look, box), daemon=True)
            for look, box in zip(looks, self._results, strict=True)
        ]
        for thread in self._threads:
            thread.start()

    def ready(self) -> bool:
        return all(self._results)

    def _work(self, look: Look, box: list[tuple[Found | None, str, float]]) -> None:
        try:
            found, fault = _answer(self.door, look[1]), ""
        except BaseException as error:
            found, fault = None, one_line(error)
        box.append((found, fault, time.monotonic() - self._begun))

    def collect(self) -> list[Fact]:
        facts: list[Fact] = []
        for look, thread, box in zip(self.looks, self._threads, self._results, strict=True):
            thread.join(max(self._begun + look[3] - time.monotonic(), 0))
            late = (None, f"no answer within {look[3]:g} s", time.monotonic() - self._begun)
            found, fault, seconds = box[0] if box else late
            facts += self._facts(look, found, fault, seconds)
        return facts
