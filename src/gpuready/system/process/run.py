"""Run programs: argument lists only, each in its own session, none outlives its deadline."""

from __future__ import annotations

import os
import select
import time

from gpuready.system.files import error_reason
from gpuready.system.host_access import RunResult
from gpuready.system.process import termination

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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

_ESSENTIAL_VARIABLES = (
    "PATH",
    "HOME",
    "USER",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
)
_DEFAULT_SIGNALS = (13, 25)
"""SIGPIPE and SIGXFSZ, which Python ignores: programs expect to be ended by them."""


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


def run(program: str, argv: Sequence[str], env: Mapping[str, str], deadline: float, limit: int) -> RunResult:
    """Run one program file until it ends, reaches its deadline or writes too much."""
    termination.collect_unkillable()
    started = time.monotonic()
    full_argv = (program, *argv[1:])
    out, err = _OutputPipe(limit), _OutputPipe(limit)
    termination.defer_termination(True)
    try:
        pid = _spawn_with_pipes(program, full_argv, env, out, err)
        termination.report_group_started(pid)
    except (OSError, ValueError) as error:
        for pipe in (out, err):
            pipe.close()
        return RunResult(full_argv, None, seconds=time.monotonic() - started, end=_start_error(error))
    finally:
        termination.defer_termination(False)
    end = ""
    try:
        end = _read_until_end(pid, (out, err), started + termination.time_until_kill(deadline))
    finally:  # also when interrupted: leave nothing running
        # The leader may be done while its children keep the pipes open: end the whole group.
        status, stuck = termination.kill_and_collect(pid)
        for pipe in (out, err):
            pipe.drain_and_close()
    rc, signal = (None, stuck) if status is None else termination.decode_wait_status(status)
    if end:  # it did not end by itself, so its status is our doing
        rc, signal = None, stuck or end
    cut = out.was_cut or err.was_cut
    return RunResult(full_argv, rc, out.decoded_text(), err.decoded_text(), time.monotonic() - started, signal, cut)


def _start_error(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "not found"
    return f"cannot execute: {error_reason(error) if isinstance(error, OSError) else 'not an argument list'}"


def _spawn_with_pipes(
    program: str, argv: Sequence[str], env: Mapping[str, str], out: _OutputPipe, err: _OutputPipe
) -> int:
    try:
        return _spawn_once(program, argv, env, out, err)
    except OSError as error:
        if error.errno != 7:  # E2BIG: the environment is too large
            raise
        essential = {name: env[name] for name in (*_ESSENTIAL_VARIABLES, "LC_ALL") if name in env}
        return _spawn_once(program, argv, essential, out, err)
    finally:
        for pipe in (out, err):
            pipe.close_write()


def _spawn_once(program: str, argv: Sequence[str], env: Mapping[str, str], out: _OutputPipe, err: _OutputPipe) -> int:
    actions = (
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, out.write, 1),
        (os.POSIX_SPAWN_DUP2, err.write, 2),
    )
    common = {"file_actions": actions, "setsigdef": _DEFAULT_SIGNALS, "setsigmask": ()}
    try:
        return os.posix_spawn(program, argv, env, setsid=True, **common)  # type: ignore[arg-type]
    except NotImplementedError:  # an old C library: use a process group
        return os.posix_spawn(program, argv, env, setpgroup=0, **common)  # type: ignore[arg-type]


def _read_until_end(pid: int, pipes: tuple[_OutputPipe, ...], until: float) -> str:
    """Read output until the program ends; return why it must be ended where it does not."""
    poll = select.poll()
    for pipe in pipes:
        poll.register(pipe.read, select.POLLIN)
    open_, tick = {pipe.read: pipe for pipe in pipes}, 0.001
    while not termination.has_ended(pid):
        left = until - time.monotonic()
        if left <= 0:
            return "deadline"
        # The tick is for a program that ends while another keeps its pipe open: that causes no event.
        tick = min(tick * 1.5, 0.02)
        for fd, _ in poll.poll(min(left, tick) * 1000):
            if not open_[fd].read_available():
                poll.unregister(fd)
                tick = 0.001  # most programs end a moment after their output does
            if open_[fd].seen_bytes > ENDLESS_FACTOR * open_[fd].limit:
                return "endless output"
    return ""


class _OutputPipe:
    """One output stream of a child, kept up to a limit."""

    def __init__(self, limit: int):
        self.limit, self.seen_bytes, self.kept = limit, 0, bytearray()
        self.read, self.write = termination.make_pipe()
        os.set_blocking(self.read, False)

    @property
    def was_cut(self) -> bool:
        return self.seen_bytes > self.limit

    def read_available(self) -> bool:
        """Read what is available; False at the end of the stream."""
        try:
            part = os.read(self.read, 1 << 16)
        except BlockingIOError:
            return True
        room = self.limit - len(self.kept)
        self.seen_bytes += len(part)
        self.kept += part[:room] if room > 0 else b""
        return bool(part)

    def drain_and_close(self) -> None:
        """Read what has already been written without waiting, and close."""
        before = -1
        while self.seen_bytes != before and not self.was_cut:
            before = self.seen_bytes
            self.read_available()
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

    def decoded_text(self) -> str:
        return self.kept.decode("utf-8", "backslashreplace")
