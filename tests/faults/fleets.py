"""Fleets for `make faults`: hosts that are network name spaces with a real sshd each, and a real Ray cluster.

Needs root. Everything is in name spaces and folders of the test: no address of this machine is used or changed.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from datetime import date
from pathlib import Path

import pytest

SRC = Path(__file__).parents[2] / "src"
ROOT = SRC.parent
NET = "10.78.0"


def sshd() -> str:
    """The server of OpenSSH, installed from the distribution's packages where it is not there."""
    if os.geteuid() != 0:
        pytest.skip("NOT ROOT: nothing of this file is tested; run `make faults` as root")
    found = shutil.which("sshd") or "/usr/sbin/sshd"
    if not os.path.exists(found):
        words = ["apt-get", "install", "-y", "--no-install-recommends", "openssh-server"]
        done = subprocess.run(
            words, capture_output=True, text=True, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        )
        if done.returncode:
            pytest.skip(f"NO sshd: {done.stderr.strip().splitlines()[-1:]}")
    return found


def ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    assert done.returncode == 0, (words, done.stderr)


def measure_torch_start(python: str, count: int) -> float:
    """Seconds in which this machine starts so many Pythons with torch at once, as busy as it is now."""
    began = time.monotonic()
    for process in [subprocess.Popen([python, "-c", "import torch.distributed"]) for _ in range(count)]:
        assert process.wait(600) == 0
    return time.monotonic() - began


class Hosts:
    """Hosts at one switch, each with an sshd; and a desk, from which they are asked."""

    def __init__(self, folder: Path, count: int):
        self.folder, self.count = folder, count
        self.mark = f"tm{os.getpid()}"
        self.names = [f"{NET}.{11 + at}" for at in range(count)]
        self.daemons: list[subprocess.Popen[bytes]] = []
        server = sshd()
        os.makedirs("/run/sshd", exist_ok=True)
        self._wires()
        self._keys()
        for at in range(count):
            self.serve(at, server)
        self._up()

    def space(self, at: int | str) -> str:
        return f"{self.mark}{at}"

    def _wires(self) -> None:
        ip("netns", "add", self.space("sw"))
        ip("-n", self.space("sw"), "link", "add", "switch", "type", "bridge")
        ip("-n", self.space("sw"), "link", "set", "switch", "up")
        for at, address in [*enumerate(self.names), ("desk", f"{NET}.1")]:
            ip("netns", "add", self.space(at))
            ends = ("link", "add", f"p{at}", "netns", self.space("sw"), "type", "veth", "peer", "name", "wire")
            ip(*ends, "netns", self.space(at))
            ip("-n", self.space("sw"), "link", "set", f"p{at}", "master", "switch")
            ip("-n", self.space("sw"), "link", "set", f"p{at}", "up")
            ip("-n", self.space(at), "link", "set", "lo", "up")
            ip("-n", self.space(at), "link", "set", "wire", "up")
            ip("-n", self.space(at), "addr", "add", f"{address}/24", "dev", "wire")

    def _keys(self) -> None:
        for name in ("host", "user", "other"):
            words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name)]
            subprocess.run(words, check=True)
        public = (self.folder / "host.pub").read_text()
        known = "".join(f"{name} {public}" for name in self.names)
        (self.folder / "known_hosts").write_text(known)
        shutil.copy(self.folder / "user.pub", self.folder / "authorized")
        config = (
            f"Host *\n IdentityFile {self.folder}/user\n IdentitiesOnly yes\n User root\n"
            f" UserKnownHostsFile {self.folder}/known_hosts\n GlobalKnownHostsFile /dev/null\n"
        )
        (self.folder / "ssh_config").write_text(config)
        binary = self.folder / "bin"
        binary.mkdir()
        (binary / "ssh").write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.folder}/ssh_config "$@"\n')
        (binary / "ssh").chmod(0o755)

    def serve(self, at: int, server: str = "/usr/sbin/sshd", before: str = "", **options: str) -> None:
        """Start the sshd of one host; ``before`` is a line of shell that is done in its own mounts first."""
        settings = {
            "ListenAddress": self.names[at], "HostKey": f"{self.folder}/host", "PidFile": "none", "StrictModes": "no",
            "AuthorizedKeysFile": f"{self.folder}/authorized", "UsePAM": "no", "PasswordAuthentication": "no",
            "PrintMotd": "no", "AcceptEnv": "OMP_NUM_THREADS", "MaxStartups": "100", **options,
        }  # fmt: skip
        words = [word for key, value in settings.items() for word in ("-o", f"{key}={value}")]
        shell = f'{before or ":"}; exec "$@"'
        argv = [
            "ip",
            "netns",
            "exec",
            self.space(at),
            "sh",
            "-c",
            shell,
            "sh",
            server,
            "-D",
            "-e",
            "-f",
            "/dev/null",
            *words,
        ]
        out = open(self.folder / f"sshd-{at}.log", "ab")  # noqa: SIM115
        while len(self.daemons) <= at:
            self.daemons.append(None)  # type: ignore[arg-type]
        self.daemons[at] = subprocess.Popen(argv, stdout=out, stderr=out, start_new_session=True)

    def stop(self, at: int) -> None:
        self.daemons[at].terminate()
        self.daemons[at].wait()

    def _up(self) -> None:
        for name in self.names:
            until = time.monotonic() + 15
            while self.service(["ssh", "-o", "BatchMode=yes", name, "true"]).returncode:
                assert time.monotonic() < until, f"the sshd of {name} does not come up"
                time.sleep(0.1)

    def service(self, argv: list[str], timeout: float = 600, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a program at the desk."""
        whole = {**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}", **env}
        words = ["ip", "netns", "exec", self.space("desk"), *argv]
        return subprocess.run(words, capture_output=True, text=True, env=whole, timeout=timeout)

    def cut(self, one: int, other: int) -> None:
        """Break the link between two hosts, in both directions."""
        for here, there in ((one, other), (other, one)):
            ip("-n", self.space(here), "route", "add", "blackhole", f"{self.names[there]}/32")

    def mend(self, one: int, other: int) -> None:
        for here, there in ((one, other), (other, one)):
            ip("-n", self.space(here), "route", "del", "blackhole", f"{self.names[there]}/32")

    def close(self) -> None:
        for daemon in self.daemons:
            if daemon is not None and daemon.poll() is None:
                daemon.terminate()
                daemon.wait()
        for at in [*range(self.count), "desk", "sw"]:
            subprocess.run(["ip", "netns", "del", self.space(at)], capture_output=True)


RAY = """
import sys
from ray.cluster_utils import Cluster
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "node_name": "n0", "include_dashboard": True,
                  "dashboard_host": "127.0.0.1", "dashboard_port": int(sys.argv[1])})
others = [cluster.add_node(num_cpus=1, num_gpus=2 if i == 1 else 0, node_name=f"n{i}") for i in range(1, int(sys.argv[2]))]
cluster.wait_for_nodes(timeout=180)
print("address", cluster.address, flush=True)
for line in sys.stdin:
    if line.strip() == "end":
        break
    cluster.remove_node(others[int(line) - 1], allow_graceful=False)
    print("killed", flush=True)
cluster.shutdown()
"""


class Ray:
    """A Ray cluster of several nodes on this host, made by Ray's own utility, in a Python that has Ray."""

    def __init__(self, python: str, folder: Path, nodes: int, **environ: str):
        self.python, self.port = python, 20000 + os.getpid() % 9000
        self.environ = {"RAY_TMPDIR": str(folder), "PATH": f"{os.path.dirname(python)}:{os.environ['PATH']}", **environ}
        env = {**os.environ, **self.environ, "TMPDIR": str(folder)}  # what Ray leaves goes with the folder
        argv = [python, "-c", RAY, str(self.port), str(nodes)]
        self.errors = open(folder / "ray.err", "wb")  # noqa: SIM115
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True, env=env
        )
        self.address = self.heard("address ").split()[1]

    def heard(self, word: str) -> str:
        for line in self.process.stdout or ():
            if line.startswith(word):
                return line
        said = Path(self.errors.name).read_text(errors="replace")[-1500:]
        raise RuntimeError(f"no {word}: the Ray cluster did not come up: {said}")

    def tell(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{text}\n")
        self.process.stdin.flush()

    def kill(self, node: int) -> None:
        """SIGKILL to a node's raylet, by Ray's own utility."""
        self.tell(str(node))

    def close(self) -> None:
        self.tell("end")
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.errors.close()


def gpuready(*words: str) -> list[str]:
    return [sys.executable, "-m", "gpuready", *words]


def kept(name: str, **figures: object) -> None:
    """Put what was measured into the file that FLEET_RESULTS names."""
    path = os.environ.get("FLEET_RESULTS")
    if not path:
        return
    file = Path(path)
    document = json.loads(file.read_text()) if file.exists() else {}
    here = os.uname()
    document["about"] = {
        "date": str(date.today()),
        "hardware": f"{os.cpu_count()} cores, {here.machine}, Linux {'.'.join(here.release.split('.')[:2])}, without GPU",
        "command": "FLEET_RESULTS=FILE python -m pytest -m faults tests/faults/test_fleet_ssh.py "
        "tests/faults/test_fleet_engines.py",
        "load": "the machine was shared: other work ran at the same time",
    }
    document[name] = figures
    file.write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")
