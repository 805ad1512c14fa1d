"""`gpuready run` on two hosts that are network name spaces: a pulled cable, IPv6 alone, a clock that jumps, nodes that come twice or late.

They need root and a torch, and are run by ``make faults`` alone. Nothing leaves the machine.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import target_environment
from tests.faults.test_root_launch import ONE, Hosts, hosts
from tests.launcher.stage import MAIN, Stage
from tests.running import QUIET, SRC

__all__ = ["hosts"]

pytestmark = pytest.mark.faults
PORT, SIX = 29571, "fd77::1"
TRAIN = """
import os, time
import torch, torch.distributed as dist
dist.init_process_group("gloo")
begun = time.monotonic()
def train():
    over, step = torch.zeros(1), 0
    while not over.item():  # all ranks end with the same step
        over.fill_(float(time.monotonic() - begun >= float(os.environ.get("TRAIN_S", "300"))))
        dist.all_reduce(over); time.sleep(0.05); step += 1
        if step == 3: print("began", flush=True)
train()
dist.barrier()
print("trained", flush=True)
"""


class Cluster:
    """One gpuready on each host, as on two nodes; a job of torchrun's."""

    def __init__(self, hosts: Hosts, folder: Path) -> None:
        self.hosts, self.stage = hosts, Stage(folder, target_environment.python())
        self.stage.script(TRAIN)
        self.running: list[subprocess.Popen] = []

    def start(
        self,
        node: int,
        *flags: str,
        at: int | None = None,
        before: tuple[str, ...] = (),
        master: str = f"{ONE}:{PORT}",
        **more: str,
    ):
        at = node if at is None else at
        env = {
            **QUIET,
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(SRC),
            "STAGE_MARK": self.stage.mark,
            "TMPDIR": str(self.stage.folder),
        }
        env |= {"GPUREADY_HOSTNAME": f"host-{at}", "GLOO_SOCKET_IFNAME": "wire", **more}
        words = [
            "--nnodes",
            "2",
            "--node-rank",
            str(node),
            "--master",
            master,
            "--nproc",
            "1",
            "--python",
            self.stage.python,
        ]
        words = [] if flags and flags[0] == "pod" else words
        log = f"logs-{len(self.running)}"
        argv = ["ip", "netns", "exec", self.hosts.names[at], *before, sys.executable, "-c", MAIN, "run", *words]
        argv += [*(one for one in flags if one != "pod"), "--log-dir", log, "--", "train.py"]
        process = subprocess.Popen(
            argv,
            cwd=self.stage.folder,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        os.set_blocking(process.stdout.fileno(), False)
        self.running.append(process)
        process.said = ""
        return process

    def until(self, process: subprocess.Popen, words: str, within: float) -> float:
        """The seconds until a node has said something."""
        began = time.monotonic()
        while words not in " ".join(process.said.split()):
            assert time.monotonic() - began < within and process.poll() is None, (words, process.said)
            process.said += (process.stdout.read() or b"").decode()
            time.sleep(0.1)
        return time.monotonic() - began

    def end(self, process: subprocess.Popen, within: float = 60) -> int:
        began = time.monotonic()
        while process.poll() is None and time.monotonic() - began < within:
            process.said += (process.stdout.read() or b"").decode()
            time.sleep(0.1)
        process.said += (process.stdout.read() or b"").decode()
        assert process.poll() is not None, process.said
        assert "Traceback" not in process.said.partition("failed:")[0], process.said
        return process.returncode

    def close(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.terminate()
                time.sleep(0.5)
                process.kill()
            process.wait()
        for pid in self.stage.left():
            os.kill(pid, 9)


@pytest.fixture
def cluster(hosts, tmp_path):
    made = Cluster(hosts, tmp_path)
    yield made
    made.close()


def test_n01_a_pulled_cable_is_named_on_both_nodes(cluster, seen):
    nodes = [cluster.start(node) for node in (0, 1)]
    for node in nodes:
        cluster.until(node, "began", 90)
    cluster.hosts.ip("-n", cluster.hosts.switch, "link", "set", "port1", "down")
    taken = [cluster.until(nodes[0], "node 1 (host-1, rank", 60)]
    taken.append(cluster.until(nodes[1], "node 0 (10.77.0.1, rank", 40))
    seen("N01", "each node names the other", "named on both", max(taken))


def test_n02_ipv6_alone(cluster, seen):
    for at in (0, 1):
        cluster.hosts.inside(at, "addr", "flush", "dev", "wire", "scope", "global")
        cluster.hosts.inside(at, "addr", "add", f"fd77::{at + 1}/64", "dev", "wire", "nodad")
    began = time.monotonic()
    nodes = [cluster.start(node, master=f"[{SIX}]:{PORT}", TRAIN_S="1") for node in (0, 1)]
    assert [cluster.end(node, 120) for node in nodes] == [0, 0], [node.said for node in nodes]
    seen("N02", "both nodes train", "both end with 0", time.monotonic() - began)


@pytest.mark.parametrize("jump", ["7200", "-7200"])
def test_n03_a_clock_that_jumps_while_it_runs(cluster, built, seen, jump, tmp_path):
    """Two hours, on one node, for its gpuready and its ranks: no note, no time-out, the right seconds."""
    clock = {
        "LD_PRELOAD": built(Path(__file__).parent / "clock.c", "libclock.so"),
        "FAKE_JUMP": jump,
        "FAKE_JUMP_FILE": str(tmp_path / "jump"),
    }
    nodes = [cluster.start(node, "--hang-timeout", "40", TRAIN_S="12", **(clock if node else {})) for node in (0, 1)]
    for node in nodes:
        cluster.until(node, "began", 90)
    (tmp_path / "jump").touch()
    assert [cluster.end(node, 120) for node in nodes] == [0, 0], [node.said for node in nodes]
    assert not any("gpuready: " in node.said for node in nodes), [node.said for node in nodes]
    seen("N03", "no note, no time-out, exit 0", "none", 12.0)


def test_n04_a_node_that_comes_twice_is_told_and_the_job_goes_on(cluster, seen):
    """A second gpuready of node 1, on another host or here, while the job runs under the same id and port."""
    nodes = [cluster.start(node, TRAIN_S="45") for node in (0, 1)]
    for node in nodes:
        cluster.until(node, "began", 90)
    twin = cluster.start(1, GPUREADY_HOSTNAME="host-9")
    began = time.monotonic()
    assert cluster.end(twin, 60) == 1
    taken = time.monotonic() - began
    assert "node 1 of this job is running already, on host-1" in " ".join(twin.said.split()), twin.said
    assert [cluster.end(node, 90) for node in nodes] == [0, 0], [node.said for node in nodes]
    seen("N04", "the twin is told who has its place; the job goes on", "told, exit 1; the job exit 0", taken)


def _until_listening(space: str, port: int, within: float = 90) -> None:
    deadline = time.monotonic() + within
    while (
        f":{port} "
        not in subprocess.run(["ip", "netns", "exec", space, "ss", "-tln"], capture_output=True, text=True).stdout
    ):
        assert time.monotonic() < deadline, f"nobody listens on {port}"
        time.sleep(0.5)


def test_n05_a_second_job_at_the_same_port_is_told_who_has_it(cluster, seen):
    cluster.start(0)
    _until_listening(cluster.hosts.names[0], PORT)
    second = cluster.start(0)
    began = time.monotonic()
    assert cluster.end(second, 30) == 1 and f"port {PORT} is taken by pid" in " ".join(second.said.split()), second.said
    seen("N05", "port taken, by pid and command", "named", time.monotonic() - began)


def test_n06_a_name_that_appears_late_in_a_pod(cluster, seen, tmp_path):
    """As TrainJob's pods are started: every flag from its variables, and DNS knows node 0 only after a while."""
    table = tmp_path / "hosts"
    table.write_text("127.0.0.1 localhost\n")
    cover = ("unshare", "-m", "sh", "-c", f'mount --bind {table} /etc/hosts && exec "$@"', "sh")
    pod = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "PET_NNODES": "2", "PET_NPROC_PER_NODE": "1", "PET_RDZV_BACKEND": "c10d",
           "PET_MASTER_ADDR": "sft-node-0-0.sft", "PET_MASTER_PORT": str(PORT), "TRAIN_S": "1"}  # fmt: skip
    python = ("--python", cluster.stage.python)
    nodes = [
        cluster.start(at, "pod", *python, before=cover, **pod, PET_NODE_RANK=str(at), JOB_COMPLETION_INDEX=str(at))
        for at in (0, 1)
    ]
    time.sleep(20)
    assert all(node.poll() is None for node in nodes), [node.stdout.read() for node in nodes]
    began = time.monotonic()
    with table.open("a") as file:  # the same file: it is mounted
        file.write(f"{ONE} sft-node-0-0.sft\n")
    assert [cluster.end(node, 120) for node in nodes] == [0, 0], [node.said for node in nodes]
    seen("N06", "waited for, then both train", "both end with 0", time.monotonic() - began)


LAUNCHED = """
import gpuready, torch
world = gpuready.launch()
total = torch.ones(1)
torch.distributed.all_reduce(total)
print("rank", world.rank, "of", world.world_size, "by", world.launcher, "sum", total.item(), flush=True)
"""


def test_n07_launch_in_pods_whose_names_appear_late(cluster, seen, tmp_path):
    """Plain Python in each pod of a TrainJob, without a launcher; DNS knows rank 0 only after a while."""
    table = tmp_path / "hosts"
    table.write_text("127.0.0.1 localhost\n")
    cover = ["unshare", "-m", "sh", "-c", f'mount --bind {table} /etc/hosts && exec "$@"', "sh"]
    pod = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "PET_NNODES": "2", "PET_NPROC_PER_NODE": "1", "PET_MASTER_ADDR": "sft-node-0-0.sft",
           "PET_MASTER_PORT": str(PORT), "PATH": os.environ["PATH"], "PYTHONPATH": str(SRC), "GPUREADY_TOKEN": "t" * 32}  # fmt: skip
    running = []
    for at, name in enumerate(cluster.hosts.names):
        env = pod | {"PET_NODE_RANK": str(at), "GPUREADY_HOSTNAME": f"host-{at}", "STAGE_MARK": cluster.stage.mark}
        words = ["ip", "netns", "exec", name, *cover, cluster.stage.python, "-c", LAUNCHED]
        running.append(subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    time.sleep(20)
    assert all(one.poll() is None for one in running), [one.communicate() for one in running]
    began = time.monotonic()
    with table.open("a") as file:
        file.write(f"{ONE} sft-node-0-0.sft\n")
    result = [one.communicate(timeout=90) for one in running]
    assert [f"rank {at} of 2 by kubernetes sum 2.0" in out for at, (out, _) in enumerate(result)] == [True, True], (
        result
    )
    seen("N07", "waited for, then both reduce", "both reduce", time.monotonic() - began)
