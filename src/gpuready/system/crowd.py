"""Run many programs in parallel: bounded in number, each with its own deadline, read line by line, none left running."""

from __future__ import annotations

import os
import select
import time

from gpuready.model import Noun
from gpuready.system import reap, runner

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    Line = Callable[[str, str], bool]

LONGEST = 2 << 20
"""Longest line that is kept, in bytes; a longer one ends its program."""

GRACE = 5.0
"""Seconds a program whose output was sufficient may take to exit and clean up."""

TAIL = 8192
"""Bytes of stderr that are kept: its end, where the reason is."""


class Task(Noun):
    """One program to run. ``stdin`` is a file to read; empty means none."""

    key: str
    argv: tuple[str, ...]
    deadline: float
    stdin: str = ""
    env: dict[str, str | None] = {}


class Ended(Noun):
    """How one program ended; ``end`` is empty where it exited by itself, ``heard`` where a line was enough."""

    key: str
    rc: int | None
    err: str = ""
    seconds: float = 0.0
    end: str = ""  # heard, deadline, a line too long, not found, signal KILL, cannot execute: why


def crowd(
    tasks: Iterable[Task],
    parallel: int,
    line: Line,
    ended: Callable[[Ended], None],
    variables: Mapping[str, str] | None = None,
) -> None:
    """Run them all. ``on_line(key, text)`` gets each line of stdout and returns True when it needs no more."""
    ours = os.environ if variables is None else variables
    waiting: Iterator[Task] = iter(tasks)
    running: dict[int, _One] = {}
    poll = select.poll()
    try:
        while True:
            while len(running) < 2 * max(parallel, 1):  # each is listed under both of its pipes
                task = next(waiting, None)  # a finished one may have added another
                if task is None:
                    break
                _begin(task, ours, running, poll, ended)
            if not running:
                return
            _turn(running, poll, line, ended)
    finally:
        for one in set(running.values()):
            one.finish("interrupted")


def _begin(
    task: Task,
    ours: Mapping[str, str],
    running: dict[int, _One],
    poll: select.poll,
    ended: Callable[[Ended], None],
) -> None:
    try:
        one = _One(task, runner.environment(ours, task.env), ours.get("PATH", os.defpath))
    except (OSError, ValueError) as error:
        ended(Ended(task.key, None, end=runner._refusal(error)))
        return
    running[one.out] = one
    poll.register(one.out, select.POLLIN)
    poll.register(one.err, select.POLLIN)
    running[one.err] = one


def _turn(running: dict[int, _One], poll: select.poll, line: Line, ended: Callable[[Ended], None]) -> None:
    """Wait a moment, read output, and finish programs that are done."""
    ready = {fd for fd, _ in poll.poll(20)}
    now = time.monotonic()
    for one in {running[fd] for fd in ready}:
        one.hear(ready, line)
    for one in list(dict.fromkeys(running.values())):
        why = one.over(now)
        if why is None:
            for fd in one.silent:
                poll.unregister(fd)
            one.silent.clear()
            continue
        for fd in (one.out, one.err):
            del running[fd]
            if fd in one.open or fd in one.silent:
                poll.unregister(fd)
        one.hear({one.out, one.err}, line)
        ended(one.finish(why))


class _One:
    """One running program."""

    def __init__(self, task: Task, env: Mapping[str, str], path: str):
        self.task, self.begun = task, time.monotonic()
        self.enough = self.long = False
        self.enough_at = 0.0
        self.rest, self.tail = b"", b""
        self.silent: list[int] = []
        program = _found(task.argv[0], path)
        self.out, out = reap.pipe()
        self.err, err = reap.pipe()
        self.open = {self.out, self.err}
        try:
            self.pid = _spawn(program, task, env, out, err)
        except BaseException:
            os.close(self.out)
            os.close(self.err)
            raise
        finally:
            os.close(out)
            os.close(err)
        for fd in self.open:
            os.set_blocking(fd, False)

    def hear(self, ready: set[int], line: Line) -> None:
        if self.err in ready and self.err in self.open:
            self.tail = (self.tail + self._taken(self.err))[-TAIL:]
        while self.out in ready and self.out in self.open and not self.enough:
            part = self._taken(self.out)
            if not part:
                break
            *whole, self.rest = (self.rest + part).split(b"\n")
            self.long = self.long or len(self.rest) > LONGEST
            for one in whole:
                if not self.enough:
                    self.enough = line(self.task.key, one.decode("utf-8", "backslashreplace"))
            if self.long:
                return

    def _taken(self, fd: int) -> bytes:
        try:
            part = os.read(fd, 1 << 16)
        except BlockingIOError:
            return b""
        if not part:
            self.open.discard(fd)
            self.silent.append(fd)
        return part

    def over(self, now: float) -> str | None:
        """Why it is over; None while it runs."""
        if self.enough:
            self.enough_at = self.enough_at or now
            return "heard" if now - self.enough_at > GRACE or reap.ended(self.pid) else None
        if self.long:
            return "a line too long"
        if reap.ended(self.pid):
            return ""
        return "deadline" if now - self.begun > self.task.deadline else None

    def finish(self, why: str) -> Ended:
        """End it and its process group, and return how it ended."""
        if why and why != "heard":
            reap.ask(self.pid)
        status, stuck = reap.end(self.pid)
        for fd in (self.out, self.err):
            os.close(fd)
        rc, end = (None, stuck) if status is None else reap.outcome(status)
        if why:
            rc, end = None, stuck or why
        seconds = time.monotonic() - self.begun
        return Ended(self.task.key, rc, self.tail.decode("utf-8", "backslashreplace"), seconds, end)


def _found(name: str, path: str) -> str:
    if "/" in name:
        return name
    tries = (f"{folder.rstrip('/')}/{name}" for folder in path.split(":") if folder.startswith("/"))
    found = next((one for one in tries if os.path.isfile(one) and os.access(one, os.X_OK)), None)
    if found is None:
        raise FileNotFoundError(name)
    return found


def _spawn(program: str, task: Task, env: Mapping[str, str], out: int, err: int) -> int:
    actions = (
        (os.POSIX_SPAWN_OPEN, 0, task.stdin or "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, out, 1),
        (os.POSIX_SPAWN_DUP2, err, 2),
    )
    argv = [program, *task.argv[1:]]
    return os.posix_spawn(
        program, argv, env, file_actions=actions, setsid=True, setsigdef=(13, 25), setsigmask=()
    )
