"""Runs one provocation in a place of its own, with a deadline, and records what it said.

Each run has its own folder, home and mark in the environment; whatever carries the mark is ended afterwards.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.induce.clean import folded, sanitised, trimmed
from tests.induce.corpus import NOT_ENVIRONMENT, untagged

MARK = "INDUCE_MARK"
SYSTEM_PATH = (
    f"/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:{Path(sys.executable).parent}"
)
TORCHRUN = (
    "torchrun --nproc-per-node {ranks} --master-addr 127.0.0.1 --master-port {port} --log-dir logs --tee 3 train.py"
)

SOURCE = re.compile(r"(\[rank\d+\]: *)?(raise |File \"|return |self\.|from |import )")
"""How a line of a traceback begins that quotes the program."""


@dataclass(frozen=True)
class Provoke:
    """One way to fail. ``decisive`` are patterns; each must match a line, else nothing is recorded.

    With ``ranks`` the script runs under torchrun, whose log then has each line's rank; ``bare`` drops it again.
    ``ends`` says how the command must end: "fail", "ok", or "deadline" for what hangs until it is stopped.
    ``also`` is another room that the command names as {other}. ``needs`` are programs, or ``root``. ``alone`` must not share the GPU.
    """

    id: str
    cause: str
    decisive: tuple[str, ...]
    script: str = ""
    command: str = "python train.py"
    ranks: int = 0
    rank: int | None = None
    bare: bool = False
    room: str = "main"
    also: str = ""
    env: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    deadline: float = 90
    ends: str = "fail"
    variant: str = ""
    needs: tuple[str, ...] = ()
    alone: bool = False

    @property
    def said(self) -> str:
        """The command as a reader would type it."""
        command = TORCHRUN if self.ranks and self.command == "python train.py" else self.command
        return command.replace("{ranks}", str(self.ranks))


@dataclass(frozen=True)
class Room:
    """Where programs come from: its bin/, folders that go first on PYTHONPATH, and what a command calls {other}."""

    bin: Path
    overlays: tuple[Path, ...] = ()
    other: Path | None = None


class NotInduced(Exception):
    """The failure did not show what it must show."""


def lacking(case: Provoke, room: Room) -> str:
    """What this machine has not got for the case, or nothing."""
    for need in case.needs:
        if need == "root":
            if os.geteuid() != 0:
                return "needs root"
        elif not shutil.which(need, path=f"{room.bin}:{SYSTEM_PATH}:{os.environ.get('PATH', '')}"):
            return f"needs {need}"
    return ""


def induce(case: Provoke, room: Room, home: Path) -> dict[str, Any]:
    """Provoke the failure once and give the row of the corpus; NotInduced when it did not show."""
    job = home / "jobs" / case.id
    shutil.rmtree(job, ignore_errors=True)
    (job / "home").mkdir(parents=True)
    text, code, seconds = performed(case, room, job)
    text = trimmed(sanitised(text, job, room.bin.parent), [*case.decisive])
    row = labels(case, text) | {"exit": code, "seconds": round(seconds, 1), "log": text}
    if case.ends == "ok" and code != 0:
        raise NotInduced(f"ended with {code}, not 0:\n{text[-1500:]}")
    if case.ends == "fail" and code in (0, None):
        raise NotInduced(f"ended with {code}, a failure was expected:\n{text[-1500:]}")
    if case.ends == "deadline" and code is not None:
        raise NotInduced(f"ended with {code} and should have hung:\n{text[-1500:]}")
    return row


def labels(case: Provoke, text: str) -> dict[str, Any]:
    """What the case knows about its log."""
    return {
        "id": case.id, "cause": case.cause, "variant": case.variant, "rank": case.rank,
        "negative": case.cause in NOT_ENVIRONMENT, "decisive": proven(case, text), "how": case.said,
        "tagged": bool(case.ranks), "bare": case.bare,
    }  # fmt: skip


def proven(case: Provoke, text: str) -> list[str]:
    """The first line that each pattern matches; a line of source in a traceback only when there is no other."""
    lines = [folded(line) for line in untagged(text).splitlines()]
    found = []
    for pattern in case.decisive:
        hits = [line for line in lines if re.search(pattern, line)]
        if not hits:
            raise NotInduced(f"no line matches {pattern!r}:\n{text[-2500:]}")
        found.append(next((line for line in hits if not SOURCE.match(line)), hits[0]))
    return found


def performed(case: Provoke, room: Room, job: Path) -> tuple[str, int | None, float]:
    """Run it: what it said, its exit code (None when the deadline ended it), and how long it took."""
    if case.script:
        (job / "train.py").write_text(case.script)
    for name, text in case.files.items():
        (job / name).parent.mkdir(parents=True, exist_ok=True)
        (job / name).write_text(text)
    mark = uuid.uuid4().hex
    command = filled(case.said, job).replace("{other}", str(room.other))
    started = time.monotonic()
    with (job / "out.log").open("wb") as out:
        process = subprocess.Popen(
            ["bash", "-c", command], cwd=job, env=environment(case, room, job, mark), stdin=subprocess.DEVNULL,
            stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            code: int | None = process.wait(case.deadline)
        except subprocess.TimeoutExpired:
            code = None
        seconds = time.monotonic() - started
        end_marked(mark)
        process.wait()
    return (job / "out.log").read_bytes().decode("utf-8", "replace"), code, seconds


def filled(command: str, job: Path) -> str:
    """The command with a free port and the folder of the job."""
    return command.replace("{port}", str(free_port())).replace("{job}", str(job))


def environment(case: Provoke, room: Room, job: Path, mark: str) -> dict[str, str]:
    """A plain environment: nothing of the caller's but where its packages come from."""
    env = {
        "PATH": f"{room.bin}:{SYSTEM_PATH}", "HOME": str(job / "home"), "LANG": "C.UTF-8", "USER": "user",
        "PYTHONUNBUFFERED": "1", "OMP_NUM_THREADS": "1", "TMPDIR": str(job / "tmp"), "TERM": "dumb",
        "PYTHONPATH": ":".join(str(path) for path in room.overlays), MARK: mark,
    }  # fmt: skip
    (job / "tmp").mkdir(exist_ok=True)
    env.update({name: value for name, value in os.environ.items() if name.startswith(("UV_", "PIP_", "SSL_CERT_"))})
    for name, value in case.env.items():
        env[name] = value.replace("{job}", str(job)).replace("{room}", str(room.bin.parent))
    return {name: value for name, value in env.items() if value != "-"}


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def end_marked(mark: str) -> None:
    """End every process of the run, wherever its launcher left it: it carries the mark in its environment."""
    want = f"{MARK}={mark}".encode()
    for _ in range(3):
        found = [pid for pid in pids() if want in environ_of(pid)]
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if not found:
            return
        time.sleep(0.1)


def pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit() and int(name) != os.getpid()]


def environ_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


def here() -> Room:
    """The Python that runs this as a room of its own."""
    return Room(Path(sys.prefix) / "bin")
