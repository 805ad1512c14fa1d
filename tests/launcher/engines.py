"""Real engines for `make faults`: Slurm with several nodes on one host, Open MPI, Ray. Installs what it needs.

Slurm and Open MPI come from the distribution's packages (as root); Ray and torch go into an environment of their own.
Everything listens on the loopback, has its own key and its own files, and is gone with its folder.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from itertools import count
from pathlib import Path

import pytest

PACKAGES = {"srun": ("slurm-wlm", "munge"), "mpirun": ("openmpi-bin",)}
DAEMONS = ("munged", "slurmctld", "slurmd")
CLUSTERS = count()
"""Clusters of one process stand side by side, each with ports of its own."""


def program(name: str) -> str:
    """A program of a distribution's package, which is installed where it is not there."""
    if shutil.which(name) is None:
        if os.geteuid() != 0 or shutil.which("apt-get") is None:
            pytest.skip(f"NO {name}: install {' '.join(PACKAGES[name])}, or run as root where there is apt-get")
        words = ["apt-get", "install", "-y", "--no-install-recommends", *PACKAGES[name]]
        done = _apt(words)
        if done.returncode:  # a list that is older than the archive asks for packages that are gone from it
            done = _apt(["apt-get", "update"]) and _apt(words)
        if done.returncode:
            pytest.skip(f"NO {name}: {done.stderr.strip().splitlines()[-1:]}")
    return shutil.which(name) or name


def _apt(words: list[str], folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, env=env, check=False)


def hydra(folder: Path) -> Path:
    """MPICH's programs in a folder of their own, so that they leave another MPI of this host alone; its name is mpirun there."""
    root = folder / "root"
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        pytest.skip("NO MPICH: it is taken from packages of Debian, and there is no apt-get here")
    names = ("mpich", "libmpich12", "libhwloc15", "libslurm38", "libucx0")
    done = _apt(["apt-get", "download", *names], folder)
    if done.returncode:
        done = _apt(["apt-get", "update"]) and _apt(["apt-get", "download", *names], folder)
    if done.returncode:
        pytest.skip(f"NO MPICH: {done.stderr.strip().splitlines()[-1:]}")
    for package in folder.glob("*.deb"):
        subprocess.run(["dpkg", "-x", str(package), str(root)], check=True)
    programs = folder / "bin"
    programs.mkdir()
    for link in ("mpirun", "mpiexec"):
        (programs / link).symlink_to(root / "usr/bin/mpiexec.hydra")
    for name in ("mpiexec.hydra", "hydra_pmi_proxy"):
        (programs / name).symlink_to(root / "usr/bin" / name)
    return folder


def environment(folder: Path, *packages: str) -> Path:
    """A Python with these packages; GPUREADY_ENGINE_HOME keeps it between runs."""
    home = Path(os.environ.get("GPUREADY_ENGINE_HOME") or folder)
    python = home / "-".join(packages) / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(python.parent.parent)], check=True)
        done = subprocess.run([str(python), "-m", "pip", "install", "-q", *packages], capture_output=True, text=True)
        if done.returncode:
            shutil.rmtree(python.parent.parent, ignore_errors=True)
            pytest.skip(f"NO {packages}: {done.stderr.strip().splitlines()[-1:]}")
    return python


CONF = """
ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CryptoType=crypto/munge
AuthInfo=socket={folder}/munge.sock
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdLogFile={folder}/slurmd-%n.log
SlurmctldLogFile={folder}/slurmctld.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
SlurmdParameters=config_overrides
KillWait=5
PropagateResourceLimits=NONE
MaxNodeCount=16
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=10 State=UP OverSubscribe=FORCE:8
"""


class Slurm:
    """A cluster of several slurmd on this host."""

    def __init__(self, folder: Path, nodes: int, files: dict[str, int] | None = None):
        """``files`` limits the open files of some nodes, which their tasks inherit."""
        self.folder, self.names = folder, [f"n{i + 1:02}" for i in range(nodes)]
        self.files = files or {}
        self.started: list[subprocess.Popen[bytes]] = []
        host, port = os.uname().nodename, 27000 + (os.getpid() + 32 * next(CLUSTERS)) % 2000
        rows = [
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port + 1 + i} CPUs=8 State=UNKNOWN"
            for i, name in enumerate(self.names)
        ]
        for name in ("state", *(f"spool-{n}" for n in self.names)):
            (folder / name).mkdir()
        self.conf = folder / "slurm.conf"
        self.conf.write_text(CONF.format(host=host, port=port, folder=folder, nodes="\n".join(rows)))
        (folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
        self.environ = {"SLURM_CONF": str(self.conf), "GPUREADY_HOSTNAME": ""}

    def __enter__(self) -> Slurm:
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o400)
        self.folder.chmod(0o755)
        names = {what: f"--{what}-file={self.folder}/munged.{what}" for what in ("pid", "log", "seed")}
        self._start(
            "munged",
            "--foreground",
            "--force",
            f"--key-file={key}",
            f"--socket={self.folder}/munge.sock",
            *names.values(),
        )
        _until(lambda: (self.folder / "munge.sock").exists(), "munged does not listen")
        self._start("slurmctld", "-D", "-f", str(self.conf))
        for name in self.names:
            self._start("slurmd", "-D", "-N", name, "-f", str(self.conf), files=self.files.get(name, 0))
        try:
            _until(self._idle, "the nodes do not come up")
        except RuntimeError:
            self.__exit__()
            raise
        return self

    def _start(self, name: str, *words: str, files: int = 0) -> None:
        path = shutil.which(name) or f"/usr/sbin/{name}"
        limit = ["prlimit", f"--nofile={files}:{files}"] if files else []
        out = open(self.folder / f"{name}.out", "ab")  # noqa: SIM115
        self.started.append(
            subprocess.Popen(
                [*limit, path, *words],
                env={**os.environ, **self.environ},
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        )

    def _idle(self) -> bool:
        result = subprocess.run(
            ["sinfo", "-h", "-N", "-o", "%N %T"], capture_output=True, text=True, env={**os.environ, **self.environ}
        )
        return sum("idle" in line for line in result.stdout.splitlines()) == len(self.names)

    def __exit__(self, *error: object) -> None:
        for process in reversed(self.started):
            process.terminate()
        for process in self.started:
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _until(true: object, otherwise: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise RuntimeError(otherwise)
        time.sleep(0.05)
