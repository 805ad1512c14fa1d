"""What a run of the faults has left on this machine: processes, ports, files, mounts. A mark tells ours from others'."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

MARK = "FAULTS_RUN"
FOLDERS = ("/tmp", "/dev/shm", "/run")
OURS = ("tarmac", "bench-", "_tarmac")
"""How the names of what tarmac and its benches make in shared folders begin."""


class Leftovers:
    """Looks before and after; ``variables`` mark whatever is started in between."""

    def __init__(self) -> None:
        self.mark = f"run-{uuid.uuid4()}"
        self.folder = tempfile.mkdtemp(prefix="faults-tmp-")
        self.variables = {MARK: self.mark, "TMPDIR": self.folder}
        self.before = self._state()

    def after(self, patience: float = 20.0) -> dict[str, list[str]]:
        """What is there now and was not before, by kind; processes have a moment to go."""
        until = time.monotonic() + patience
        while (left := self.processes()) and time.monotonic() < until:
            time.sleep(0.1)
        now = self._state()
        found = {kind: sorted(now[kind] - self.before[kind]) for kind in now}
        ports = sorted({port for pid in left for port in listening(pid)})
        found |= {"processes": [_named(pid) for pid in left], "ports": [str(port) for port in ports]}
        shutil.rmtree(self.folder, ignore_errors=True)
        return found

    def processes(self) -> list[int]:
        """Those that carry the mark, but for this one and those above it."""
        own, found = _ancestors(), []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                marked = self.mark.encode() in Path(f"/proc/{name}/environ").read_bytes()
            except OSError:
                continue
            if marked and int(name) not in own:
                found.append(int(name))
        return found

    def _state(self) -> dict[str, set[str]]:
        return {"files": self._files(), "mounts": _mounts()}

    def _files(self) -> set[str]:
        found = {
            f"{self.folder}/{name}" for name in os.listdir(self.folder) if not name.startswith("pytest-of-")
        }
        for folder in FOLDERS:
            names = os.listdir(folder) if os.path.isdir(folder) else []
            found |= {f"{folder}/{name}" for name in names if name.startswith(OURS)}
        return found


def _ancestors() -> set[int]:
    found, pid = set(), os.getpid()
    while pid > 1:
        found.add(pid)
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except (OSError, ValueError):
            break
    return found


def _named(pid: int) -> str:
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        words = []
    return f"{pid} {b' '.join(words)[:80].decode('utf-8', 'replace')}".strip()


def _mounts() -> set[str]:
    """Mounts of this namespace, networks with a name, and loop devices with a file."""
    found = {line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()}
    found.discard("/run/netns")  # made with the first network that has a name, and kept by iproute2
    if os.path.isdir("/run/netns"):
        found |= {f"netns {name}" for name in os.listdir("/run/netns")}
    losetup = shutil.which("losetup")
    if losetup:
        said = subprocess.run([losetup, "-a"], capture_output=True, text=True, check=False).stdout
        found |= {f"loop {line.partition(':')[0]}" for line in said.splitlines()}
    return found


def listening(pid: int) -> list[int]:
    """The TCP ports that a process listens at."""
    inodes = set()
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            target = os.readlink(f"/proc/{pid}/fd/{name}")
            if target.startswith("socket:["):
                inodes.add(target[8:-1])
        rows = [
            line.split()
            for kind in ("tcp", "tcp6")
            for line in Path(f"/proc/{pid}/net/{kind}").read_text().splitlines()[1:]
        ]
    except OSError:
        return []
    return [int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == "0A" and row[9] in inodes]
