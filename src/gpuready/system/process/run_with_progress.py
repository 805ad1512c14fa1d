"""Run a long program to its end or deadline, and report each line of its progress."""

from __future__ import annotations

import time

from gpuready.system.host_access import RunResult
from gpuready.system.process import run, termination

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gpuready.system.host_access import HostAccess

OUTPUT_LIMIT = 32 << 20
"""Bytes kept of either output stream."""


def unredacted_variables(host: HostAccess) -> dict[str, str]:
    """The environment including secrets: only to pass to a child, never to show."""
    found = getattr(host, "variables", None)
    return dict(found) if found is not None else host.get_environment()


def run_with_progress(
    host: HostAccess,
    argv: Sequence[str],
    on_line: Callable[[str], None],
    deadline: float,
    env: Mapping[str, str | None] | None = None,
    limit: int = OUTPUT_LIMIT,
) -> RunResult:
    """Run a program in its own process group; each line of stderr is reported at once."""
    program = argv[0] if "/" in argv[0] else host.find_program(argv[0])
    if program is None:
        return RunResult(tuple(argv), None, end="not found")
    termination.collect_unkillable()
    return _run_reporting_lines(
        program, argv, run.child_environment(unredacted_variables(host), env), on_line, deadline, limit
    )


def _run_reporting_lines(
    program: str,
    argv: Sequence[str],
    env: Mapping[str, str],
    on_line: Callable[[str], None],
    deadline: float,
    limit: int,
) -> RunResult:
    started, full_argv = time.monotonic(), (program, *argv[1:])
    out, err = run._OutputPipe(limit), _LinePipe(limit, on_line)
    try:
        pid = run._spawn_with_pipes(program, full_argv, env, out, err)
    except (OSError, ValueError) as error:
        for pipe in (out, err):
            pipe.close()
        return RunResult(full_argv, None, seconds=time.monotonic() - started, end=run._start_error(error))
    end = ""
    try:
        end = run._read_until_end(pid, (out, err), started + deadline)
    finally:  # also when interrupted: leave nothing running
        status, stuck = termination.kill_and_collect(pid)
        for pipe in (out, err):
            pipe.drain_and_close()
    rc, signal = (None, stuck) if status is None else termination.decode_wait_status(status)
    if end:
        rc, signal = None, stuck or end
    return RunResult(
        full_argv,
        rc,
        out.decoded_text(),
        err.decoded_text(),
        time.monotonic() - started,
        signal,
        out.was_cut or err.was_cut,
    )


class _LinePipe(run._OutputPipe):
    """A stream that reports complete lines as they arrive."""

    def __init__(self, limit: int, on_line: Callable[[str], None]):
        super().__init__(limit)
        self._on_line, self._reported = on_line, 0

    def read_available(self) -> bool:
        more = super().read_available()
        while (at := self.kept.find(b"\n", self._reported)) >= 0:
            line = self.kept[self._reported : at].decode("utf-8", "backslashreplace")
            self._reported = at + 1
            self._on_line(line)
        return more
