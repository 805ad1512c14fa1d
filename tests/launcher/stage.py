"""Run `gpuready run` as a user would, with scripts of a test's own; afterwards nothing of it may be left."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
import uuid
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.deadlines import GENEROUS_S
from tests.forks import is_of_a_start
from tests.running import QUIET, SRC, run_forked

if TYPE_CHECKING:
    from collections.abc import Callable

MAIN = "from gpuready.cli import main; main()"


def take_terminal(path: str) -> None:
    """In a new process: a session of its own, whose terminal this is; input, output and errors go there."""
    os.setsid()
    fd = os.open(path, os.O_RDWR)
    for name in (0, 1, 2):
        os.dup2(fd, name)
    os.close(fd)


class Terminal:
    """A terminal for one run; our end can be read, and closed as a window is."""

    def __init__(self, stage: Stage):
        self.fd, other = pty.openpty()
        path = os.ttyname(other)
        os.close(other)
        stage.before = lambda: take_terminal(path)

    def read_all(self) -> str:
        """What was drawn until the last process of the session has closed it."""
        drawn = b""
        try:
            while data := os.read(self.fd, 65536):
                drawn += data
        except OSError:  # EIO: nobody has it open any more
            pass
        self.close()
        return drawn.decode()

    def close(self) -> None:
        os.close(self.fd)


class Ran:
    """One run that has ended."""

    def __init__(self, code: int, out: str, err: str, seconds: float):
        self.code, self.out, self.err, self.seconds = code, out, err, seconds

    @cached_property
    def found(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.out)
        return found

    @property
    def words(self) -> str:
        """All that was said, as one line."""
        return " ".join((self.out + "\n" + self.err).split())


class Stage:
    """A folder with scripts, and runs in it."""

    def __init__(self, folder: Path, python: str = sys.executable):
        self.folder, self.python, self.mark = folder, python, uuid.uuid4().hex
        self.before: Callable[[], None] | None = None  # done in the new process, before it begins

    def script(self, text: str, name: str = "train.py", mode: int = 0o644) -> str:
        path = self.folder / name
        path.write_text(text)
        path.chmod(mode)
        return name

    def _words(self, argv: tuple[str, ...]) -> list[str]:
        requested = [] if "--python" in argv else ["--python", self.python]
        return ["run", *requested, "--log-dir", "logs", *argv]

    def _variables(self, environment: dict[str, str]) -> dict[str, str]:
        env = {
            **QUIET,
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(SRC),
            "STAGE_MARK": self.mark,
            "TMPDIR": str(self.folder),
            **environment,
        }
        return env | {k: v for k, v in os.environ.items() if k.startswith("COVERAGE")}

    def start(self, *argv: str, **environment: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-c", MAIN, *self._words(argv)],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.folder,
            env=self._variables(environment), preexec_fn=self.before,
        )  # fmt: skip

    def run(self, *argv: str, timeout: float = 2 * GENEROUS_S, **environment: str) -> Ran:
        if self.before or is_of_a_start(environment):
            return self.ended(self.start(*argv, **environment), timeout)
        began = time.monotonic()
        code, out, err = run_forked(self._words(argv), self._variables(environment), self.folder)
        return self._looked_after(Ran(code, out, err, time.monotonic() - began))

    def ended(self, process: subprocess.Popen[bytes], timeout: float = 2 * GENEROUS_S) -> Ran:
        began = time.monotonic()
        try:
            out, err = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        return self._looked_after(Ran(process.returncode, out.decode(), err.decode(), time.monotonic() - began))

    def _looked_after(self, done: Ran) -> Ran:
        assert not [line for line in done.err.splitlines() if line.startswith("Traceback")], done.err
        assert not self.left(), f"left behind: {self.left()}"
        return done

    def left(self) -> list[int]:
        """Processes of this stage that still live."""
        found = []
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) != os.getpid():
                try:
                    state = Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[0]
                    if state != "Z" and self.mark.encode() in Path(f"/proc/{name}/environ").read_bytes():
                        found.append(int(name))
                except OSError:
                    continue
        return found

    def log(self, rank: int) -> str:
        return (self.folder / "logs" / f"rank-{rank}.log").read_text()

    def until(self, said: str, rank: int = 0, seconds: float = GENEROUS_S) -> None:
        """Wait until a rank has said something."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                if said in self.log(rank):
                    return
            except OSError:
                pass
            if time.monotonic() > deadline:
                raise AssertionError(f"rank {rank} never said {said!r}")
            time.sleep(0.02)

    def pid(self, rank: int) -> int:
        found = re.search(r"pid (\d+)", self.log(rank))
        assert found
        return int(found[1])


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    os.kill(pid, number)
