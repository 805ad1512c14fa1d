"""What is done from outside to a run of watched_cases.toml: signals, a frozen group, a full disk, a reader or a terminal that goes away."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.launcher.stage import Terminal

if TYPE_CHECKING:
    import subprocess

    from tests.launcher.stage import Stage

GONE_SECONDS = 2.0


class Act:
    """One act: before the run starts, when its ranks have said "ready", and what it left afterwards."""

    def __init__(self, name: str, stage: Stage):
        self.name, self.stage = name, stage
        self.terminal: Terminal | None = None

    def prepare(self) -> None:
        if self.name == "small log disk":
            (self.stage.folder / "logs").mkdir()
            self.stage.before = self._mount_small_disk
        elif self.name == "nohup":
            self.stage.before = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
        elif self.name == "terminal closes":
            self.terminal = Terminal(self.stage)

    def _mount_small_disk(self) -> None:
        from tests.faults import mounts

        mounts.apart()
        mounts.sh("mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(self.stage.folder / "logs"))

    def perform(self, process: subprocess.Popen[bytes]) -> None:
        kind, _, rest = self.name.partition(" ")
        if kind in ("", "long", "small", "gone"):
            return
        for rank in range(3):
            self.stage.until("ready", rank)
        if kind == "term":
            process.terminate()
        elif kind == "usr1":
            process.send_signal(signal.SIGUSR1)
        elif kind == "nohup":
            process.send_signal(signal.SIGHUP)
        elif kind == "reader":
            assert process.stdout is not None
            process.stdout.close()
        elif kind == "terminal":
            assert self.terminal is not None
            self.terminal.close()
        elif kind == "freeze":
            _freeze(self.stage, _ready_pid(self.stage, int(rest)))

    def describe_files(self) -> str:
        """What the case left behind on purpose, as words."""
        kind, _, rest = self.name.partition(" ")
        if kind == "long":
            _, rank, length = rest.split()
            whole = any(len(line) >= int(length) for line in self.stage.log(int(rank)).splitlines())
            return "" if whole else "\nfailed: the line was cut\n"
        if kind == "gone":
            pid = int((self.stage.folder / rest).read_text())
            return "" if _is_gone(pid) else f"\nfailed: process {pid} was left\n"
        return "\n" + " ".join(p.name for p in self.stage.folder.glob("saved-*") if p.read_text() == "whole")


def _is_gone(pid: int) -> bool:
    deadline = time.monotonic() + GONE_SECONDS
    while Path(f"/proc/{pid}").exists():
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            return False
        time.sleep(0.05)
    return True


def _ready_pid(stage: Stage, rank: int) -> int:
    found = re.search(r"ready (\d+)", stage.log(rank))
    assert found
    return int(found[1])


def _cgroup(stage: Stage) -> Path:
    root = Path("/sys/fs/cgroup")
    return (root / "freezer" if (root / "freezer").is_dir() else root) / f"watched-{stage.mark[:8]}"


def _freeze(stage: Stage, pid: int) -> None:
    group = _cgroup(stage)
    group.mkdir()
    (group / "cgroup.procs").write_text(str(pid))
    old = group / "freezer.state"
    old.write_text("FROZEN") if old.exists() else (group / "cgroup.freeze").write_text("1")


def thaw(stage: Stage) -> None:
    group = _cgroup(stage)
    if group.is_dir():
        old = group / "freezer.state"
        old.write_text("THAWED") if old.exists() else (group / "cgroup.freeze").write_text("0")
        procs = group.parent / "cgroup.procs"
        for pid in (group / "cgroup.procs").read_text().split():
            procs.write_text(pid)
        group.rmdir()
