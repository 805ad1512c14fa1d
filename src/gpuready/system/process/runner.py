"""Run programs: argument lists only, each in its own session, none outlives its deadline.

`run_program` runs one to its end, `run_with_progress` also reports its lines, and a `BackgroundProcess`
runs beside other work; `parallel_programs` runs many. All are `StartedProgram`s.
"""

import os
import select
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from typing import TypeVar

from gpuready.system.files import error_reason, is_in_environment
from gpuready.system.host_access import HostAccess, RunResult
from gpuready.system.own_programs import OWN_PROGRAMS
from gpuready.system.process import termination

LineHandler = Callable[[str, str], bool]
ReturnType = TypeVar("ReturnType")


DROPPED_VARIABLES = (
    "PYTHONHOME",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "LD_PRELOAD",
    "LD_AUDIT",
    "BASH_ENV",
    "ENV",
    "LANGUAGE",
)
"""Variables that change what a program is, rather than what it reports: never passed on."""

ENDLESS_FACTOR = 8
"""A program that writes this many times its limit counts as endless, and is ended."""

PROGRESS_OUTPUT_LIMIT = 32 << 20
"""Bytes kept of either output stream of a long program."""

MAX_LINE_BYTES = 2 << 20
"""Longest line that is reported, in bytes."""

EXIT_GRACE_S = 5.0
"""Seconds a program whose output was sufficient may take to exit and clean up."""

STDERR_TAIL_BYTES = 8192
"""Bytes of stderr that are kept of programs in parallel: its end, where the reason is."""

KEPT_BYTES = 64 << 10
"""Bytes of a background program's output kept at the beginning, and as many at the end."""

KILL_WAIT_S = 10.0
"""Seconds a killed background program may take to exit: a driver first releases a GPU full of memory."""

_ESSENTIAL_VARIABLES = (
    "PATH",
    "HOME",
    "USER",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
    "LC_ALL",
)
_DEFAULT_SIGNALS = (13, 25)
"""SIGPIPE and SIGXFSZ, which Python ignores: programs expect to be ended by them."""


SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/opt", "/snap", "/nix/store", "/run/current-system", "/System", "/Library")
"""Where the system's own programs are, which a dry run may start."""

_DRY_RUN: ContextVar[bool] = ContextVar("_DRY_RUN", default=False)


class NotStarted(OSError):
    """A program that a dry run does not start."""


def call_dry(do: Callable[[], ReturnType]) -> ReturnType:
    """Call a function that starts none but the system's programs, and gpuready's own."""
    token = _DRY_RUN.set(True)
    try:
        return do()
    finally:
        _DRY_RUN.reset(token)


def _is_system_path(path: str) -> bool:
    """Whether a path is in a folder of the system, in no Python environment, and not below the current folder."""
    here = os.getcwd().rstrip("/") + "/"
    is_system = path.startswith(tuple(f"{folder}/" for folder in SYSTEM_FOLDERS))
    return is_system and not path.startswith(here) and not is_in_environment(path)


def _require_dry_program(program: str, env: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a program of a dry run, with the system's folders on PATH; NotStarted for any other program."""
    real = os.path.realpath(program)
    if program not in OWN_PROGRAMS and not (_is_system_path(program) and _is_system_path(real)):
        raise NotStarted(f"{program} is not started in a dry run: it is not a program of the system")
    folders = [one for one in env.get("PATH", os.defpath).split(":") if _is_system_path(f"{os.path.realpath(one)}/")]
    return {**env, "PATH": ":".join(folders)}


def unredacted_variables(host: HostAccess) -> dict[str, str]:
    """The environment including secrets: only to pass to a child, never to show."""
    found = getattr(host, "variables", None)
    return dict(found) if found is not None else host.get_environment()


def child_environment(base_env: Mapping[str, str], changes: Mapping[str, str | None] | None) -> dict[str, str]:
    """Environment of a child: ours, filtered, in the C locale, with the caller's changes."""
    env = {name: value for name, value in base_env.items() if name not in DROPPED_VARIABLES}
    env["LC_ALL"] = "C"
    for name, value in (changes or {}).items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    return env


# -- one started program


class OutputPipe:
    """One output stream of a child: its beginning and its end are kept up to a limit, complete lines are reported."""

    def __init__(self, head_limit: int, tail_limit: int = 0, on_line: Callable[[str], None] | None = None):
        self.limit, self._tail_limit, self._on_line = head_limit, tail_limit, on_line
        self.seen_bytes, self._head, self._tail, self._partial_line = 0, bytearray(), b"", b""
        self.line_too_long = False
        self.read, self.write = termination.make_pipe()
        os.set_blocking(self.read, False)

    def read_available(self) -> bool:
        """Read what is available; False at the end of the stream, which closes it."""
        if self.read < 0:
            return False
        try:
            part = os.read(self.read, 1 << 16)
        except BlockingIOError:
            return True
        if not part:
            self.close()
            return False
        self.seen_bytes += len(part)
        room = max(self.limit - len(self._head), 0)
        self._head += part[:room]
        if self._tail_limit:
            self._tail = (self._tail + part[room:])[-self._tail_limit :]
        if self._on_line:
            self._report_lines(part, self._on_line)
        return True

    def _report_lines(self, part: bytes, on_line: Callable[[str], None]) -> None:
        *lines, rest = (self._partial_line + part).split(b"\n")
        self.line_too_long = self.line_too_long or len(rest) > MAX_LINE_BYTES
        self._partial_line = rest[:MAX_LINE_BYTES]
        for line in lines:
            on_line(line.decode("utf-8", "backslashreplace"))

    def drain_and_close(self) -> None:
        """Read what has already been written, which is at most what a pipe holds, and close."""
        before = -1
        for _ in range(64):
            if self.seen_bytes == before or not self.read_available():
                break
            before = self.seen_bytes
        self.close()

    def close(self) -> None:
        self.close_write()
        if self.read >= 0:
            os.close(self.read)
            self.read = -1

    def close_write(self) -> None:
        if self.write >= 0:
            os.close(self.write)
            self.write = -1

    @property
    def was_cut(self) -> bool:
        return self.seen_bytes > self.limit

    @property
    def is_excessive(self) -> bool:
        """Whether there is more output than any honest program writes."""
        is_endless = self.seen_bytes > ENDLESS_FACTOR * self.limit > 0 and not self._tail_limit
        return is_endless or self.line_too_long

    def decoded_text(self) -> str:
        """What was kept, with the number of omitted bytes between the beginning and the end."""
        omitted = self.seen_bytes - len(self._head) - len(self._tail)
        between = f"\n... {omitted} bytes left out ...\n".encode() if self.limit and self._tail and omitted > 0 else b""
        return (bytes(self._head) + between + self._tail).decode("utf-8", "backslashreplace")


class StartedProgram:
    """A program in its own session from start to end. OSError or ValueError where it cannot be started."""

    def __init__(
        self,
        argv: Sequence[str],
        env: Mapping[str, str],
        deadline: float,
        out: OutputPipe,
        err: OutputPipe,
        stdin: str = "/dev/null",
        cwd: str = "",
    ):
        self.started_at = time.monotonic()
        self.ends_at = self.started_at + deadline
        self.pipes: tuple[OutputPipe, ...] = (out,) if out is err else (out, err)
        self.has_ended = False
        termination.defer_termination(True)
        try:
            self.pid = _spawn_with_environment(argv, env, out.write, err.write, stdin, cwd)
            termination.report_group_started(self.pid)
        except BaseException:
            for pipe in self.pipes:
                pipe.close()
            raise
        finally:
            termination.defer_termination(False)
            for pipe in self.pipes:
                pipe.close_write()

    def end_reason(self) -> str | None:
        """Why it is over: empty where it ended by itself, None while it runs."""
        if termination.has_ended(self.pid):
            return ""
        return "deadline" if time.monotonic() >= self.ends_at else None

    def stop_program(self, reason: str, grace: float = termination.KILL_GRACE_S) -> tuple[int | None, str]:
        """End it and its process group; return its exit code and how it ended.

        The leader may be done while its children keep the pipes open. With a reason its status is our doing, and not reported.
        """
        self.has_ended = True
        try:
            status, stuck = termination.kill_and_collect(self.pid, grace)
        finally:
            for pipe in self.pipes:
                pipe.drain_and_close()
        if reason:
            return None, stuck or reason
        return (None, stuck) if status is None else termination.decode_wait_status(status)


def wait_for_any(programs: Iterable[StartedProgram], seconds: float) -> None:
    """Read output until one of the running programs may be over, or for some seconds."""
    running, poll = [program for program in programs if not program.has_ended], select.poll()
    by_fd = {pipe.read: pipe for program in running for pipe in program.pipes if pipe.read >= 0}
    for fd in by_fd:
        poll.register(fd, select.POLLIN)
    until, tick = min([time.monotonic() + seconds, *(program.ends_at for program in running)]), 0.001
    while running and not any(termination.has_ended(program.pid) for program in running):
        left = until - time.monotonic()
        if left <= 0:
            return
        # The tick is for a program that ends while another keeps its pipe open: that causes no event.
        tick = min(tick * 1.5, 0.02)
        for fd, _ in poll.poll(min(left, tick) * 1000):
            if not by_fd[fd].read_available():
                poll.unregister(fd)
                tick = 0.001  # most programs end a moment after their output does
            if by_fd[fd].is_excessive:
                return


def start_error_text(error: Exception) -> str:
    """Why a program could not be started."""
    if isinstance(error, NotStarted):
        return str(error)
    if isinstance(error, FileNotFoundError):
        return "not found"
    return f"cannot execute: {error_reason(error) if isinstance(error, OSError) else 'not an argument list'}"


def _spawn_with_environment(
    argv: Sequence[str], env: Mapping[str, str], out: int, err: int, stdin: str, cwd: str
) -> int:
    env = _require_dry_program(argv[0], env) if _DRY_RUN.get() else env
    try:
        return _spawn_once(argv, env, out, err, stdin, cwd)
    except OSError as error:
        if error.errno != 7:  # E2BIG: the environment is too large
            raise
        essential = {name: env[name] for name in _ESSENTIAL_VARIABLES if name in env}
        return _spawn_once(argv, essential, out, err, stdin, cwd)


def _spawn_once(argv: Sequence[str], env: Mapping[str, str], out: int, err: int, stdin: str, cwd: str) -> int:
    if cwd:  # posix_spawn cannot change the folder; subprocess takes 20 ms to import, so others do without it
        import subprocess

        started = subprocess.Popen(
            list(argv), stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=cwd, env=dict(env), start_new_session=True
        )
        started.returncode = 0  # it is collected here, not by subprocess
        return started.pid
    actions = (
        (os.POSIX_SPAWN_OPEN, 0, stdin, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, out, 1),
        (os.POSIX_SPAWN_DUP2, err, 2),
    )
    common = {"file_actions": actions, "setsigdef": _DEFAULT_SIGNALS, "setsigmask": ()}
    try:
        return os.posix_spawn(argv[0], argv, env, setsid=True, **common)  # type: ignore[arg-type]
    except NotImplementedError:  # an old C library: use a process group
        return os.posix_spawn(argv[0], argv, env, setpgroup=0, **common)  # type: ignore[arg-type]


# -- one program to its end


def run_program(
    program: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    deadline: float,
    limit: int,
    on_line: Callable[[str], None] | None = None,
    stdin: str = "/dev/null",
) -> RunResult:
    """Run one program file until it ends, reaches its deadline or writes too much; report each line of stderr."""
    termination.collect_unkillable()
    started_at, full_argv = time.monotonic(), (program, *argv[1:])
    out, err = OutputPipe(limit), OutputPipe(limit, on_line=on_line)
    started, reason, before = None, None, termination.hold_signals()
    try:
        started = StartedProgram(full_argv, env, termination.time_until_kill(deadline), out, err, stdin)
        termination.release_signals(before)
        while (reason := started.end_reason()) is None:
            if max(out.seen_bytes, err.seen_bytes) > ENDLESS_FACTOR * limit:
                reason = "endless output"
                break
            wait_for_any((started,), deadline)
    except (OSError, ValueError) as error:
        if started is not None:
            raise
        return RunResult(full_argv, None, seconds=time.monotonic() - started_at, end=start_error_text(error))
    finally:  # also when interrupted: leave nothing running
        termination.release_signals(before)
        rc, end = started.stop_program(reason or "") if started else (None, "")
    cut = out.was_cut or err.was_cut
    return RunResult(full_argv, rc, out.decoded_text(), err.decoded_text(), time.monotonic() - started_at, end, cut)


def ask_program(host: HostAccess, argv: Sequence[str], question: str | bytes, deadline: float, limit: int) -> RunResult:
    """Run one program with a text on its stdin; the text lies in a file of our own while it runs."""
    import tempfile

    program = argv[0] if "/" in argv[0] else host.find_program(argv[0])
    if program is None:
        return RunResult(tuple(argv), None, end="not found")
    with tempfile.NamedTemporaryFile(prefix=".gpuready-ask-") as file:
        file.write(question.encode("utf-8", "replace") if isinstance(question, str) else question)
        file.flush()
        return run_program(program, argv, unredacted_variables(host), deadline, limit, stdin=file.name)


def run_with_progress(
    host: HostAccess,
    argv: Sequence[str],
    on_line: Callable[[str], None],
    deadline: float,
    env: Mapping[str, str | None] | None = None,
    limit: int = PROGRESS_OUTPUT_LIMIT,
) -> RunResult:
    """Run a long program to its end or deadline; each line of stderr is reported at once."""
    program = argv[0] if "/" in argv[0] else host.find_program(argv[0])
    if program is None:
        return RunResult(tuple(argv), None, end="not found")
    return run_program(program, argv, child_environment(unredacted_variables(host), env), deadline, limit, on_line)


# -- a program beside other work


class BackgroundProcess(StartedProgram):
    """A program in its own folder, with a deadline; `wait_for_any` reads its output."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str], cwd: str, deadline: float):
        self.seconds, self.exit, self.end = 0.0, None, ""  # type: float, int | None, str
        self._output = OutputPipe(KEPT_BYTES, KEPT_BYTES)
        try:
            super().__init__(argv, env, deadline, self._output, self._output, cwd=cwd)
        except (OSError, ValueError) as error:
            self.has_ended, self.end = True, f"cannot execute: {getattr(error, 'strerror', None) or error}"

    @property
    def size(self) -> int:
        """Bytes of output so far."""
        return self._output.seen_bytes

    def output_text(self) -> str:
        """The output: all of it, or its beginning and end with the number of omitted bytes between."""
        return self._output.decoded_text()

    def check_ended(self) -> bool:
        """Whether it is over: by itself, or by its deadline. Then nothing of it keeps running."""
        if not self.has_ended and (reason := self.end_reason()) is not None:
            self.stop_process(reason)
        return self.has_ended

    def stop_process(self, reason: str) -> None:
        """End it and everything it started."""
        if not self.has_ended:
            self.seconds = time.monotonic() - self.started_at
            self.exit, self.end = self.stop_program(reason, KILL_WAIT_S)
