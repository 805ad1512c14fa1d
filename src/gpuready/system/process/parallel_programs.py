"""Run many programs in parallel, and report their lines as they come."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress

from gpuready.model import Record
from gpuready.model.record import field
from gpuready.system.files import is_executable_file, list_program_paths
from gpuready.system.process import termination
from gpuready.system.process.runner import (
    EXIT_GRACE_S,
    STDERR_TAIL_BYTES,
    OutputPipe,
    StartedProgram,
    child_environment,
    start_error_text,
    wait_for_any,
)

LineHandler = Callable[[str, str], bool]


class ProgramTask(Record):
    """One program to run. ``stdin`` is a file to read; empty means none."""

    key: str
    argv: tuple[str, ...]
    deadline: float
    stdin: str = ""
    env: dict[str, str | None] = field(default_factory=dict)


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
    is_late: Callable[[str, float], bool] = lambda key, seconds: False,
) -> None:
    """Run them all. ``on_line(key, text)`` gets each line of stdout and returns True when it needs no more;
    ``is_late(key, seconds)`` ends one before its deadline.
    """
    base_env = os.environ if variables is None else variables
    waiting: Iterator[ProgramTask] = iter(tasks)
    running: list[_ParallelProgram] = []
    guard = _Guard()
    try:
        while True:
            while len(running) < max(parallel, 1):
                task = next(waiting, None)  # a finished one may have added another
                if task is None:
                    break
                try:
                    running.append(_ParallelProgram(task, base_env, on_line))
                    guard.tell("born", running[-1].pid)
                except (OSError, ValueError) as error:
                    on_end(ProgramEnd(task.key, None, end=start_error_text(error)))
            if not running:
                return
            wait_for_any(running, 0.02)
            for program in [*running]:
                reason = program.end_reason()
                seconds = time.monotonic() - program.started_at
                if reason is None and is_late(program.task.key, seconds):
                    # What it waited for a processor of this machine says nothing of the other one.
                    is_slow = is_late(program.task.key, seconds - _seconds_queued(program.pid))
                    reason = "deadline" if is_slow else None
                if reason is not None:
                    running.remove(program)
                    ended = program.finish_program(reason)
                    guard.tell("gone", program.pid)
                    on_end(ended)
    finally:
        for program in running:
            program.finish_program("interrupted")
            guard.tell("gone", program.pid)
        guard.close()


def _seconds_queued(pid: int) -> float:
    """For how long a process was ready to run and had no processor: ``2903412 96797 12``, in nanoseconds."""
    try:
        with open(f"/proc/{pid}/schedstat", encoding="ascii") as file:
            return int(file.read().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):  # a kernel without it
        return 0.0


class _Guard:
    """A shell that ends the programs where this process is gone, even by SIGKILL: ssh with a host that hangs would stay."""

    SCRIPT = """while read word group; do case $word in born) all="$all $group ";;
        gone) all="${all%%" $group "*}${all#*" $group "}";; esac; done; for group in $all; do kill -9 -$group; done"""

    def __init__(self) -> None:
        read, self.pipe = os.pipe()
        nothing = os.open(os.devnull, os.O_RDWR)
        actions = [(os.POSIX_SPAWN_DUP2, read, 0), *((os.POSIX_SPAWN_DUP2, nothing, fd) for fd in (1, 2))]
        self.pid = os.posix_spawn("/bin/sh", ["sh", "-c", self.SCRIPT], {}, file_actions=actions, setpgroup=0)
        os.close(read)
        os.close(nothing)

    def tell(self, word: str, group: int) -> None:
        with suppress(OSError):  # somebody has killed the shell
            os.write(self.pipe, f"{word} {group}\n".encode())

    def close(self) -> None:
        os.close(self.pipe)
        os.waitpid(self.pid, 0)


class _ParallelProgram(StartedProgram):
    """One of several programs: lines of stdout are reported until one is enough; the end of stderr is kept."""

    def __init__(self, task: ProgramTask, base_env: Mapping[str, str], on_line: LineHandler):
        self.task, self._report_to, self._heard_at = task, on_line, 0.0
        name, env = task.argv[0], child_environment(base_env, task.env)
        paths = [name] if "/" in name else list_program_paths(name, base_env.get("PATH", os.defpath))
        program = next((path for path in paths if "/" in name or is_executable_file(path)), None)
        if program is None:
            raise FileNotFoundError(name)
        out, err = OutputPipe(0, on_line=self._handle_line), OutputPipe(0, STDERR_TAIL_BYTES)
        super().__init__((program, *task.argv[1:]), env, task.deadline, out, err, task.stdin or "/dev/null")

    def _handle_line(self, text: str) -> None:
        if not self._heard_at and self._report_to(self.task.key, text):
            self._heard_at = time.monotonic()

    def end_reason(self) -> str | None:
        if self._heard_at:
            is_over = time.monotonic() - self._heard_at > EXIT_GRACE_S or termination.has_ended(self.pid)
            return "heard" if is_over else None
        return "a line too long" if self.pipes[0].line_too_long else super().end_reason()

    def finish_program(self, reason: str) -> ProgramEnd:
        if reason == "interrupted":
            self._heard_at = time.monotonic()  # the caller takes no more lines
        if reason and reason != "heard":
            termination.request_termination(self.pid)
        rc, end = self.stop_program(reason)
        return ProgramEnd(self.task.key, rc, self.pipes[1].decoded_text(), time.monotonic() - self.started_at, end)
