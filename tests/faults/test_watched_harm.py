"""What watching must never do: end a healthy run, hide its answer, cut its ranks short. Real disks, signals and engines."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.faults import mounts
from tests.launcher import engines
from tests.launcher.stage import Stage

pytestmark = pytest.mark.faults

WRITER = """
import os, time
print("pid", os.getpid(), flush=True)
def write_checkpoint():
    with open(f"disk/{os.environ['RANK']}", "w") as file:
        file.write("x" * 4096); file.flush(); os.fsync(file.fileno())
time.sleep(2)
if os.environ["RANK"] == "1": write_checkpoint()
time.sleep(1000)
"""


def test_a_rank_in_uninterruptible_sleep_is_named_and_ctrl_c_has_its_answer(tmp_path, seen):
    stage = Stage(tmp_path)
    stage.script(WRITER)
    (tmp_path / "d").mkdir()
    with mounts.disk(tmp_path / "d") as disk:
        os.symlink(disk, tmp_path / "disk")
        with mounts.frozen(disk):
            process = stage.start("--nproc", "2", "--grace", "2", "--", "train.py")
            stage.until("pid", 1)
            text, at = _read_until(process, "uninterruptible sleep", 50)
            assert "rank 1 on here" in text and "write_checkpoint" in text
            began = time.monotonic()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
            taken = time.monotonic() - began
        assert process.returncode == 130 and b"interrupted" in out and b"ValueError" not in out + err
    _until_gone(stage)
    seen("H01", "rank 1 in state D with its line, and exit 130", f"both, exit after {taken:.0f} s", at)


def _read_until(process, words: str, within: float) -> tuple[str, float]:
    began, text = time.monotonic(), ""
    os.set_blocking(process.stderr.fileno(), False)
    while words not in text:
        assert time.monotonic() - began < within, text
        text += (process.stderr.read() or b"").decode()
        time.sleep(0.1)
    time.sleep(0.5)
    text += (process.stderr.read() or b"").decode()
    os.set_blocking(process.stderr.fileno(), True)
    return text, time.monotonic() - began


def _until_gone(stage: Stage, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while stage.left() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not stage.left()


PIDS = "import os, time\nprint('pid', os.getpid(), 'parent', os.getppid(), flush=True)\n"
CAUGHT = (
    "import signal\ngot = []\nsignal.signal(signal.SIGUSR1, lambda *a: got.append(1))\n"
    + PIDS
    + "while not got: time.sleep(0.05)\nprint('requeued', flush=True)\n"
)


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    engines.program("srun")
    with engines.Slurm(tmp_path_factory.mktemp("slurm"), 2) as made:
        yield made


def _parent(stage: Stage, rank: int) -> int:
    found = re.search(r"parent (\d+)", stage.log(rank))
    assert found
    return int(found[1])


def test_a_slurm_node_that_dies_is_named(slurm, tmp_path, seen):
    """Its agent and its slurmstepd are gone at once: nobody reports the end of its rank."""
    stage = Stage(tmp_path)
    stage.script(PIDS + "time.sleep(1000)\n")
    process = stage.start("--engine", "slurm", "--nnodes", "2", "--nproc", "1", "--", "train.py", **slurm.environ)
    for rank in (0, 1):
        stage.until("parent", rank, 60)
    agent = _parent(stage, 1)
    step = int(Path(f"/proc/{agent}/stat").read_text().rpartition(")")[2].split()[1])
    began = time.monotonic()
    for pid in (step, agent):
        os.kill(pid, signal.SIGKILL)
    done = stage.ended(process, 60)
    assert done.code not in (0, 2) and "rank 1 on" in done.words and "no longer heard of" in done.words, done.words
    seen("H02", "rank 1 and its node named", "named", time.monotonic() - began)


def test_sigusr1_reaches_the_ranks_as_under_srun(slurm, tmp_path, seen):
    stage = Stage(tmp_path)
    stage.script(CAUGHT)
    process = stage.start("--engine", "slurm", "--nnodes", "2", "--nproc", "1", "--", "train.py", **slurm.environ)
    for rank in (0, 1):
        stage.until("parent", rank, 60)
    env = {**os.environ, **slurm.environ}
    jobs = subprocess.run(["squeue", "-h", "-o", "%i"], env=env, capture_output=True, text=True).stdout.split()
    began = time.monotonic()
    subprocess.run(["scancel", "-s", "USR1", *jobs], env=env, check=True)
    done = stage.ended(process, 60)
    assert done.code == 0 and done.out.count("requeued") == 2, done.words
    seen("H03", "both ranks got SIGUSR1", "got it", time.monotonic() - began)


def test_an_agent_of_mpirun_that_is_killed(tmp_path, seen):
    engines.program("mpirun")
    stage = Stage(tmp_path)
    stage.script(PIDS + "time.sleep(1000)\n")
    process = stage.start("--engine", "mpi", "--nproc", "2", "--no-preflight", "--", "train.py")
    for rank in (0, 1):
        stage.until("parent", rank, 60)
    began = time.monotonic()
    os.kill(_parent(stage, 1), signal.SIGKILL)
    done = stage.ended(process, 60)
    assert done.code not in (0, 2) and "rank 1 on" in done.words and "no longer heard of" in done.words
    assert "MEM003" not in done.words
    seen("H04", "rank 1 named, no lack of memory", "named", time.monotonic() - began)
