"""Run programs: argument lists only, each in its own session, none outlives its deadline."""

from __future__ import annotations

import os
import select
import time

from gpuready.system import reap
from gpuready.system.door import Ran
from gpuready.system.files import why

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCRUBBED = (
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

ENOUGH = 8
"""A program that writes this many times its limit counts as endless, and is ended."""

_ESSENTIAL = (
    "PATH",
    "HOME",
    "USER",
    "TMPDIR",
    "LD_LIBRARY_PATH",
    "CUDA_HOME",
    "CUDA_PATH",
    "CUDA_VISIBLE_DEVICES",
)
_RESTORED = (13, 25)
"""SIGPIPE and SIGXFSZ, which Python ignores: programs expect to be ended by them."""


def environment(ours: Mapping[str, str], changes: Mapping[str, str | None] | None) -> dict[str, str]:
    """Environment of a child: ours, filtered, in the C locale, with the caller's changes."""
    env = {name: value for name, value in ours.items() if name not in SCRUBBED}
    env["LC_ALL"] = "C"
    for name, value in (changes or {}).items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = value
    return env


def run(program: str, argv: Sequence[str], env: Mapping[str, str], deadline: float, limit: int) -> Ran:
    """Run one program file until it ends, reaches its deadline or writes too much."""
    reap.sweep()
    begun = time.monotonic()
    named = (program, *argv[1:])
    out, err = _Pipe(limit), _Pipe(limit)
    reap.hold(True)
    try:
        pid = _spawn(program, named, env, out, err)
        reap.born(pid)
    except (OSError, ValueError) as error:
        for pipe in (out, err):
            pipe.close()
        return Ran(named, None, seconds=time.monotonic() - begun, end=_refusal(error))
    finally:
        reap.hold(False)
    end = ""
    try:
        end = _follow(pid, (out, err), begun + reap.before(deadline))
    finally:  # also when interrupted: leave nothing running
        # The leader may be done while its children keep the pipes open: end the whole group.
        status, stuck = reap.end(pid)
        for pipe in (out, err):
            pipe.finish()
    rc, signal = (None, stuck) if status is None else reap.outcome(status)
    if end:  # it did not end by itself, so its status is our doing
        rc, signal = None, stuck or end
    cut = out.cut or err.cut
    return Ran(named, rc, out.text(), err.text(), time.monotonic() - begun, signal, cut)


def _refusal(error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return "not found"
    return f"cannot execute: {why(error) if isinstance(error, OSError) else 'not an argument list'}"


def _spawn(program: str, argv: Sequence[str], env: Mapping[str, str], out: _Pipe, err: _Pipe) -> int:
    try:
        return _spawn_once(program, argv, env, out, err)
    except OSError as error:
        if error.errno != 7:  # E2BIG: the environment is too large
            raise
        few = {name: env[name] for name in (*_ESSENTIAL, "LC_ALL") if name in env}
        return _spawn_once(program, argv, few, out, err)
    finally:
        for pipe in (out, err):
            pipe.close_write()


def _spawn_once(program: str, argv: Sequence[str], env: Mapping[str, str], out: _Pipe, err: _Pipe) -> int:
    actions = (
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, out.write, 1),
        (os.POSIX_SPAWN_DUP2, err.write, 2),
    )
    common = {"file_actions": actions, "setsigdef": _RESTORED, "setsigmask": ()}
    try:
        return os.posix_spawn(program, argv, env, setsid=True, **common)  # type: ignore[arg-type]
    except NotImplementedError:  # an old C library: use a process group
        return os.posix_spawn(program, argv, env, setpgroup=0, **common)  # type: ignore[arg-type]


def _follow(pid: int, pipes: tuple[_Pipe, ...], until: float) -> str:
    """Read output until the program ends; return why it must be ended where it does not."""
    poll = select.poll()
    for pipe in pipes:
        poll.register(pipe.read, select.POLLIN)
    open_, tick = {pipe.read: pipe for pipe in pipes}, 0.001
    while not reap.ended(pid):
        left = until - time.monotonic()
        if left <= 0:
            return "deadline"
        # The tick is for a program that ends while another keeps its pipe open: that causes no event.
        tick = min(tick * 1.5, 0.02)
        for fd, _ in poll.poll(min(left, tick) * 1000):
            if not open_[fd].take():
                poll.unregister(fd)
                tick = 0.001  # most programs end a moment after their output does
            if open_[fd].seen > ENOUGH * open_[fd].limit:
                return "endless output"
    return ""


class _Pipe:
    """One output stream of a child, kept up to a limit."""

    def __init__(self, limit: int):
        self.limit, self.seen, self.kept = limit, 0, bytearray()
        self.read, self.write = reap.pipe()
        os.set_blocking(self.read, False)

    @property
    def cut(self) -> bool:
        return self.seen > self.limit

    def take(self) -> bool:
        """Read what is available; False at the end of the stream."""
        try:
            part = os.read(self.read, 1 << 16)
        except BlockingIOError:
            return True
        room = self.limit - len(self.kept)
        self.seen += len(part)
        self.kept += part[:room] if room > 0 else b""
        return bool(part)

    def finish(self) -> None:
        """Read what has already been written without waiting, and close."""
        before = -1
        while self.seen != before and not self.cut:
            before = self.seen
            self.take()
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

    def text(self) -> str:
        return self.kept.decode("utf-8", "backslashreplace")
