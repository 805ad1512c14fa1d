"""What a run of the faults has left on this machine: processes, ports, files, mounts.

A mark tells our processes from others'. Files go to a folder of the run, and as root to a /dev/shm that nobody else sees;
what appears elsewhere counts too, unless a process of other work on this machine is seen to use it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

from tests.faults import mounts

MARK = "FAULTS_RUN"
FOLDERS = ("/tmp", "/dev/shm", "/run")
OURS = ("gpuready", "bench-", "_gpuready")
"""How the names of what gpuready and its benches make in shared folders begin."""


class Leftovers:
    """Looks before and after; ``variables`` mark whatever is started in between."""

    def __init__(self) -> None:
        self.mark = f"run-{uuid.uuid4()}"
        self.folder = tempfile.mkdtemp(prefix="ft-")  # short, as the names of sockets below it must be
        os.chmod(self.folder, 0o1777)  # as /tmp: some tests are other users
        self.variables = {MARK: self.mark, "TMPDIR": self.folder}
        self.before = self._state()

    def after(self, patience: float = 20.0) -> dict[str, list[str]]:
        """What is there now and was not before, by kind; it has a moment to go."""
        until, others = time.monotonic() + patience, set[str]()
        while True:
            left, now = self.processes(), self._state()
            new = {kind: now[kind] - self.before[kind] for kind in now}
            others |= {path for path in new["files"] if not path.startswith(self.folder) and self._used(path)}
            new["files"] -= others
            if not (left or any(new.values())) or time.monotonic() > until:
                break
            time.sleep(0.1)
        found = {kind: sorted(names) for kind, names in new.items()}
        ports = sorted({port for pid in left for port in listening(pid)})
        found |= {"processes": [_named(pid) for pid in left], "ports": [str(port) for port in ports]}
        shutil.rmtree(self.folder, ignore_errors=True)
        return found

    def _used(self, path: str) -> bool:
        """Whether a process that is none of ours works with a file."""
        ours = {*self.processes(), *_ancestors()}
        return any(int(pid) not in ours and _works_with(pid, path) for pid in os.listdir("/proc") if pid.isdigit())

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
        found = {f"{self.folder}/{name}" for name in os.listdir(self.folder) if not name.startswith("pytest-of-")}
        for folder in FOLDERS:
            names = os.listdir(folder) if os.path.isdir(folder) else []
            found |= {f"{folder}/{name}" for name in names if name.startswith(OURS)}
        return found


def own_shared_memory() -> None:
    """As root: from here on /dev/shm is a fresh one, of this process and its children, and gone with them."""
    if os.geteuid() == 0:
        try:
            mounts.apart()
            mounts.sh("mount", "-t", "tmpfs", "tmpfs", "/dev/shm")
        except (OSError, subprocess.CalledProcessError):
            return  # a container without that right: then it is shared with whoever else works here


def _works_with(pid: str, path: str) -> bool:
    try:
        for name in ("cmdline", "environ"):
            if path.encode() in Path(f"/proc/{pid}/{name}").read_bytes():
                return True
        links = [f"/proc/{pid}/cwd", *(f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd"))]
        return any(os.readlink(link).startswith(path) for link in links)
    except OSError:  # it has ended meanwhile
        return False


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
