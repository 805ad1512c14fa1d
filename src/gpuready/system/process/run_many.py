"""Run many programs in parallel: bounded in number, each with its own deadline, read line by line, none left running."""

from __future__ import annotations

import os
import select
import time

from gpuready.model import Record
from gpuready.system.process import run, termination

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    LineHandler = Callable[[str, str], bool]

MAX_LINE_BYTES = 2 << 20
"""Longest line that is kept, in bytes; a longer one ends its program."""

EXIT_GRACE_S = 5.0
"""Seconds a program whose output was sufficient may take to exit and clean up."""

STDERR_TAIL_BYTES = 8192
"""Bytes of stderr that are kept: its end, where the reason is."""


class ProgramTask(Record):
    """One program to run. ``stdin`` is a file to read; empty means none."""

    key: str
    argv: tuple[str, ...]
    deadline: float
    stdin: str = ""
    env: dict[str, str | None] = {}


class ProgramEnd(Record):
    """How one program ended; ``end`` is empty where it exited by itself, ``heard`` where a line was enough."""

    key: str
    rc: int | None
    err: str = ""
    seconds: float = 0.0
    end: str = ""  # heard, deadline, a line too long, not found, signal KILL, cannot execute: why


def run_programs(
    tasks: Iterable[ProgramTask],
    parallel: int,
    on_line: LineHandler,
    on_end: Callable[[ProgramEnd], None],
    variables: Mapping[str, str] | None = None,
) -> None:
    """Run them all. ``on_line(key, text)`` gets each line of stdout and returns True when it needs no more."""
    base_env = os.environ if variables is None else variables
    waiting: Iterator[ProgramTask] = iter(tasks)
    running: dict[int, _RunningProgram] = {}
    poll = select.poll()
    try:
        while True:
            while len(running) < 2 * max(parallel, 1):  # each is listed under both of its pipes
                task = next(waiting, None)  # a finished one may have added another
                if task is None:
                    break
                _start_program(task, base_env, running, poll, on_end)
            if not running:
                return
            _poll_programs(running, poll, on_line, on_end)
    finally:
        for program in set(running.values()):
            program.finish_program("interrupted")


def _start_program(
    task: ProgramTask,
    base_env: Mapping[str, str],
    running: dict[int, _RunningProgram],
    poll: select.poll,
    on_end: Callable[[ProgramEnd], None],
) -> None:
    try:
        program = _RunningProgram(task, run.child_environment(base_env, task.env), base_env.get("PATH", os.defpath))
    except (OSError, ValueError) as error:
        on_end(ProgramEnd(task.key, None, end=run._start_error(error)))
        return
    running[program.out] = program
    poll.register(program.out, select.POLLIN)
    poll.register(program.err, select.POLLIN)
    running[program.err] = program


def _poll_programs(
    running: dict[int, _RunningProgram], poll: select.poll, on_line: LineHandler, on_end: Callable[[ProgramEnd], None]
) -> None:
    """Wait a moment, read output, and finish programs that are done."""
    ready = {fd for fd, _ in poll.poll(20)}
    now = time.monotonic()
    for program in {running[fd] for fd in ready}:
        program.read_output(ready, on_line)
    for program in list(dict.fromkeys(running.values())):
        reason = program.end_reason(now)
        if reason is None:
            for fd in program.closed_pipes:
                poll.unregister(fd)
            program.closed_pipes.clear()
            continue
        for fd in (program.out, program.err):
            del running[fd]
            if fd in program.open_pipes or fd in program.closed_pipes:
                poll.unregister(fd)
        program.read_output({program.out, program.err}, on_line)
        on_end(program.finish_program(reason))


class _RunningProgram:
    """One running program."""

    def __init__(self, task: ProgramTask, env: Mapping[str, str], path: str):
        self.task, self.started_at = task, time.monotonic()
        self.heard_enough = self.line_too_long = False
        self.heard_enough_at = 0.0
        self.partial_line, self.tail = b"", b""
        self.closed_pipes: list[int] = []
        program = _find_executable(task.argv[0], path)
        self.out, out = termination.make_pipe()
        self.err, err = termination.make_pipe()
        self.open_pipes = {self.out, self.err}
        try:
            self.pid = _spawn_program(program, task, env, out, err)
        except BaseException:
            os.close(self.out)
            os.close(self.err)
            raise
        finally:
            os.close(out)
            os.close(err)
        for fd in self.open_pipes:
            os.set_blocking(fd, False)

    def read_output(self, ready: set[int], on_line: LineHandler) -> None:
        if self.err in ready and self.err in self.open_pipes:
            self.tail = (self.tail + self._read_pipe(self.err))[-STDERR_TAIL_BYTES:]
        while self.out in ready and self.out in self.open_pipes and not self.heard_enough:
            chunk = self._read_pipe(self.out)
            if not chunk:
                break
            *complete_lines, self.partial_line = (self.partial_line + chunk).split(b"\n")
            self.line_too_long = self.line_too_long or len(self.partial_line) > MAX_LINE_BYTES
            for raw_line in complete_lines:
                if not self.heard_enough:
                    self.heard_enough = on_line(self.task.key, raw_line.decode("utf-8", "backslashreplace"))
            if self.line_too_long:
                return

    def _read_pipe(self, fd: int) -> bytes:
        try:
            part = os.read(fd, 1 << 16)
        except BlockingIOError:
            return b""
        if not part:
            self.open_pipes.discard(fd)
            self.closed_pipes.append(fd)
        return part

    def end_reason(self, now: float) -> str | None:
        """Why it is over; None while it runs."""
        if self.heard_enough:
            self.heard_enough_at = self.heard_enough_at or now
            return "heard" if now - self.heard_enough_at > EXIT_GRACE_S or termination.has_ended(self.pid) else None
        if self.line_too_long:
            return "a line too long"
        if termination.has_ended(self.pid):
            return ""
        return "deadline" if now - self.started_at > self.task.deadline else None

    def finish_program(self, reason: str) -> ProgramEnd:
        """End it and its process group, and return how it ended."""
        if reason and reason != "heard":
            termination.request_termination(self.pid)
        status, stuck = termination.kill_and_collect(self.pid)
        for fd in (self.out, self.err):
            os.close(fd)
        rc, end = (None, stuck) if status is None else termination.decode_wait_status(status)
        if reason:
            rc, end = None, stuck or reason
        seconds = time.monotonic() - self.started_at
        return ProgramEnd(self.task.key, rc, self.tail.decode("utf-8", "backslashreplace"), seconds, end)


def _find_executable(name: str, path: str) -> str:
    if "/" in name:
        return name
    tries = (f"{folder.rstrip('/')}/{name}" for folder in path.split(":") if folder.startswith("/"))
    found = next((one for one in tries if os.path.isfile(one) and os.access(one, os.X_OK)), None)
    if found is None:
        raise FileNotFoundError(name)
    return found


def _spawn_program(program: str, task: ProgramTask, env: Mapping[str, str], out: int, err: int) -> int:
    actions = (
        (os.POSIX_SPAWN_OPEN, 0, task.stdin or "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, out, 1),
        (os.POSIX_SPAWN_DUP2, err, 2),
    )
    argv = [program, *task.argv[1:]]
    return os.posix_spawn(program, argv, env, file_actions=actions, setsid=True, setsigdef=(13, 25), setsigmask=())
