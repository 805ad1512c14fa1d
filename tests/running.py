"""Run the real command in a process of its own, as a user would."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from tests import forks
from tests.forks import QUIET, SRC


class Run(NamedTuple):
    code: int
    out: str
    err: str


COMMAND = "from gpuready.cli import main; main()"


def gpuready(*argv: str, cwd: Path | None = None, timeout: float = 60, code: str = COMMAND, **environment: str) -> Run:
    """Run the command; a fork of a process that has imported it serves, but where the start itself matters."""
    environment |= {k: v for k, v in os.environ.items() if k.startswith("COVERAGE")}
    env = {**QUIET, "PYTHONPATH": str(SRC), **environment}
    if code == COMMAND and not forks.is_of_a_start(environment):
        return run_forked(argv, env, cwd, timeout)
    done = subprocess.run(
        [sys.executable, "-c", code, *argv],
        capture_output=True,
        cwd=cwd,
        env=env,
        timeout=timeout,
        stdin=subprocess.DEVNULL,
    )
    return Run(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))


def run_forked(
    argv: Sequence[str], env: Mapping[str, str], cwd: Path | None = None, timeout: float = forks.MOST_S
) -> Run:
    code, out, err, _ = forks.start_server("", os.getpid()).run(["-c", *argv], env, cwd or Path.cwd(), timeout)
    return Run(code, out.decode("utf-8", "replace"), err.decode("utf-8", "replace"))


def call_gpuready(*argv: str, cwd: Path | None = None, **environment: str) -> Run:
    """Run the command in this process, for questions that are asked dozens of times: a process of its own costs ten times as much.

    Disks are asked in a thread: to fork a process as large as this one costs more than the question.
    """
    from gpuready.cli import run_command_line
    from gpuready.system.process import isolation

    out, err, before = io.StringIO(), io.StringIO(), Path.cwd()
    threads = mock.patch.object(isolation, "is_single_threaded", return_value=False)
    os.chdir(cwd or before)
    try:
        quiet = mock.patch.dict(os.environ, {**QUIET, **environment}, clear=True)
        with threads, quiet, redirect_stdout(out), redirect_stderr(err):
            code = run_command_line(list(argv))
    finally:
        os.chdir(before)
    return Run(code, out.getvalue(), err.getvalue())
