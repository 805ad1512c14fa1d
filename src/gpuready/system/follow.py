"""Run a long program to its end or deadline, and report each line of its progress."""

from __future__ import annotations

import time

from gpuready.system import reap, runner
from gpuready.system.door import Ran

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpuready.system.door import Door

LIMIT = 32 << 20
"""Bytes kept of either output stream."""


def variables(door: Door) -> dict[str, str]:
    """The environment including secrets: only to pass to a child, never to show."""
    found = getattr(door, "variables", None)
    return dict(found) if found is not None else door.environ()


def follow(
    door: Door,
    argv: Sequence[str],
    hear: Callable[[str], None],
    deadline: float,
    env: Mapping[str, str | None] | None = None,
    limit: int = LIMIT,
) -> Ran:
    """Run a program in its own process group; each line of stderr is reported at once."""
    program = argv[0] if "/" in argv[0] else door.which(argv[0])
    if program is None:
        return Ran(tuple(argv), None, end="not found")
    reap.sweep()
    return _run(program, argv, runner.environment(variables(door), env), hear, deadline, limit)


def _run(
    program: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    hear: Callable[[str], None],
    deadline: float,
    limit: int,
) -> Ran:
    begun, named = time.monotonic(), (program, *argv[1:])
    out, err = runner._Pipe(limit), _Heard(limit, hear)
    try:
        pid = runner._spawn(program, named, env, out, err)
    except (OSError, ValueError) as error:
        for pipe in (out, err):
            pipe.close()
        return Ran(named, None, seconds=time.monotonic() - begun, end=runner._refusal(error))
    end = ""
    try:
        end = runner._follow(pid, (out, err), begun + deadline)
    finally:  # also when interrupted: leave nothing running
        status, stuck = reap.end(pid)
        for pipe in (out, err):
            pipe.finish()
    rc, signal = (None, stuck) if status is None else reap.outcome(status)
    if end:
        rc, signal = None, stuck or end
    return Ran(named, rc, out.text(), err.text(), time.monotonic() - begun, signal, out.cut or err.cut)


class _Heard(runner._Pipe):
    """A stream that reports complete lines as they arrive."""

    def __init__(self, limit: int, hear: Callable[[str], None]):
        super().__init__(limit)
        self._hear, self._told = hear, 0

    def take(self) -> bool:
        more = super().take()
        while (at := self.kept.find(b"\n", self._told)) >= 0:
            line = self.kept[self._told : at].decode("utf-8", "backslashreplace")
            self._told = at + 1
            self._hear(line)
        return more
